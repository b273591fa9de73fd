# SPDX-License-Identifier: MIT
"""Real torch tensors without a GPU: what a CUDA kernel says of them (cuda_arrays.cc)."""

from collections.abc import Callable
from typing import Any

import deep_jit
import pytest
import torch

Load = Callable[..., deep_jit.CudaKernel]


class OldTensor(torch.Tensor):
    """As of a torch without DLPack's C interface."""

    __dlpack_c_exchange_api__ = None


@pytest.mark.parametrize("symbol", ["_Z1kPf", "k"])
def test_tensors_on_the_cpu(load: Load, driver: Any, symbol: str) -> None:
    kernel = load(symbol, 8)
    tensor = torch.ones(4)
    for one in (tensor, tensor[::2], torch.nn.Parameter(tensor), tensor.as_subclass(OldTensor)):
        with pytest.raises(deep_jit.LaunchError, match=r"is on the CPU.*tensor\.cuda\(\)"):
            kernel[1, 1](one)
    assert driver.take_launches() == []


def test_a_tensor_without_an_address(load: Load, driver: Any) -> None:
    with pytest.raises(RuntimeError, match="have storage"):
        load("k", 8)[1, 1](torch.ones(2).to_sparse())
    assert driver.take_launches() == []
