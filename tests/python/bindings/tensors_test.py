# SPDX-License-Identifier: MIT
"""torch CPU tensors as kernel arguments (python/bindings/arrays.cc)."""

from typing import Any

import deep_jit
import pytest

torch = pytest.importorskip("torch", reason="torch is not importable for this Python")


@pytest.fixture
def add_one(runtime: deep_jit.Runtime) -> deep_jit.Kernel:
    return runtime.compile(
        "add_one",
        "__global__ void add_one(float* out, const float* x)"
        "{ out[threadIdx.x] = x[threadIdx.x] + 1; }",
    )


def test_tensors_are_used_in_place(add_one: deep_jit.Kernel) -> None:
    x = torch.arange(6, dtype=torch.float32)
    out = torch.zeros(2, 3)
    add_one[1, 6](out, x)
    assert out.flatten().tolist() == [1, 2, 3, 4, 5, 6]
    part = torch.zeros(8)
    add_one[1, 6](part[1:7], torch.nn.Parameter(x))
    assert part.tolist() == [0, 1, 2, 3, 4, 5, 6, 0]


@pytest.mark.parametrize(
    "c_type, dtype",
    [
        ("double", "float64"),
        ("int", "int32"),
        ("long long", "int64"),
        ("unsigned char", "uint8"),
        ("bool", "bool"),
        ("void", "complex64"),
    ],
)
def test_dtypes(runtime: deep_jit.Runtime, c_type: str, dtype: str) -> None:
    kernel = runtime.compile(
        "address",
        f"__global__ void address(unsigned long long* out, {c_type}* p) {{ *out = (size_t)p; }}",
    )
    tensor = torch.zeros(3, dtype=getattr(torch, dtype))
    out = torch.zeros(1, dtype=torch.int64)
    for _ in range(2):  # the second time the dtype is known
        out.zero_()
        kernel[1, 1](out, tensor)
        assert out.item() == tensor.data_ptr()


def _refused() -> list[tuple[Any, str]]:
    return [
        (torch.zeros(4, 4).t(), "not C-contiguous"),
        (torch.zeros(8)[::2], "not C-contiguous"),
        (torch.zeros(4, dtype=torch.float64), "array of float64"),
        (torch.zeros(4, dtype=torch.int32), "array of int32"),
        (torch.zeros(4, device="meta"), "another device"),
        (torch.zeros(4, dtype=torch.complex64).conj().imag, "not C-contiguous|negative view"),
        (torch._neg_view(torch.zeros(4)), "negative view"),
    ]


@pytest.mark.parametrize("index", range(len(_refused())))
def test_tensors_that_would_be_misread_are_refused(add_one: deep_jit.Kernel, index: int) -> None:
    argument, problem = _refused()[index]
    with pytest.raises(deep_jit.LaunchError, match=problem) as raised:
        add_one[1, 1](argument, torch.zeros(4))
    assert raised.value.parameter == 0


def test_conjugate_views_are_refused(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile("raw", "__global__ void raw(const void* p) {}")
    tensor = torch.zeros(4, dtype=torch.complex64)
    kernel[1, 1](tensor)
    with pytest.raises(deep_jit.LaunchError, match="conjugate"):
        kernel[1, 1](tensor.conj())


def test_tensors_are_no_scalars(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile("echo", "__global__ void echo(int* out, int value) { *out = value; }")
    with pytest.raises(deep_jit.LaunchError, match="not an array"):
        kernel[1, 1](torch.zeros(1, dtype=torch.int32), torch.ones(1, dtype=torch.int32))
