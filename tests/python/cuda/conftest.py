# SPDX-License-Identifier: MIT
"""Fixtures of the CUDA tests: a driver and a toolkit that write down what they are told."""

import ctypes
import itertools
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deep_jit
import pytest

_NVCC = """#!/bin/sh
case "$*" in *--version*)
  echo 'nvcc: NVIDIA (R) Cuda compiler driver'
  echo 'Cuda compilation tools, release 13.0, V13.0.88'
  exit 0;;
esac
out=; last=
for word in "$@"; do
  [ "$last" = --output-file ] && out=$word
  last=$word
done
printf '%s\\n' "$*" >> LOG
case "$*" in *REFUSE*) echo 'error: refused'; exit 2;; esac
echo "made of $*" > "$out"
"""


class FakeDriver:
    """The stand-in for libcuda.so.1: loaded by its path, it answers for the name from then on."""

    def __init__(self) -> None:
        folder = Path(os.environ["RUNFILES_DIR"], os.environ["TEST_WORKSPACE"], "tests/python/cuda")
        self._library = ctypes.CDLL(str(folder / "libfake_cuda.so"))
        self._library.fake_take_launches.restype = ctypes.c_char_p
        self._library.fake_count.restype = ctypes.c_size_t

    def reset(self) -> None:
        self._library.fake_reset()
        self.set_device(0)

    def set_device(self, device: int) -> None:
        """Makes the device's context current for this thread; -1: none."""
        self._library.fake_set_device(device)

    def set_kernel(self, symbol: str, *sizes: int) -> None:
        """What every library holds."""
        self._library.fake_set_kernel(
            symbol.encode(), (ctypes.c_size_t * len(sizes))(*sizes), ctypes.c_size_t(len(sizes))
        )

    def set_function_attribute(self, attribute: int, value: int) -> None:
        self._library.fake_set_function_attribute(attribute, value)

    def fail(self, name: str, result: int) -> None:
        """Makes an entry point return an error."""
        self._library.fake_fail(name.encode(), result)

    def count(self, name: str) -> int:
        """How often an entry point was called."""
        return self._library.fake_count(name.encode())

    def take_launches(self) -> list[dict[str, Any]]:
        return json.loads(self._library.fake_take_launches())

    def take_arguments(self) -> list[bytes]:
        """The arguments of the one launch there was."""
        (launch,) = self.take_launches()
        return [bytes.fromhex(argument) for argument in launch["arguments"]]


@pytest.fixture(scope="session")
def _loaded_driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def driver(_loaded_driver: FakeDriver) -> FakeDriver:
    _loaded_driver.reset()
    return _loaded_driver


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CUDA toolkit whose nvcc writes its command lines to the file `log`."""
    for name in ("CUDA_HOME", "CUDA_PATH", "CUDAHOSTCXX", "NVCC_CCBIN", "CXX"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "toolkit"
    nvcc = root / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(_NVCC.replace("LOG", shlex.quote(str(root / "log"))))
    nvcc.chmod(0o755)
    return root


@pytest.fixture
def cuda(toolkit: Path, cache_dir: Path) -> "deep_jit.Runtime[deep_jit.CudaKernel]":
    """A CUDA runtime with the toolkit above and a cache of its own."""
    return deep_jit.Runtime("cuda", env_prefix="OWN", toolkit_root=toolkit)


@pytest.fixture
def load(
    driver: FakeDriver, cuda: "deep_jit.Runtime[deep_jit.CudaKernel]"
) -> Callable[..., deep_jit.CudaKernel]:
    """Loads a kernel with this symbol and parameters of these sizes."""
    numbers = itertools.count()

    def load_kernel(symbol: str, *sizes: int) -> deep_jit.CudaKernel:
        driver.set_kernel(symbol, *sizes)
        return cuda.compile("k", f"__global__ void k() {{}} // {next(numbers)}")

    return load_kernel
