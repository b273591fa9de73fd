# SPDX-License-Identifier: MIT
"""Compiles two kernels, launches them, checks the numbers, and shows what a cache saves.

    ./bazelw run //:quickstart -- --n=1000000 --cache_dir=/tmp/quickstart
    python3 quickstart.py --backend=cuda      # with a GPU, nvcc or NVRTC, and torch

Without --cache_dir it starts from an empty temporary cache and removes it at the end. The exit code
is 0 only when both kernels, in this process and in a second one, agree with NumPy, and the second
one has compiled nothing.
"""

import dataclasses
import importlib
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import deep_jit
import numpy as np
from absl import app, flags

_BACKEND = flags.DEFINE_enum(
    "backend", "host", ["cuda", "host"], "Where the kernels run; cuda needs torch for its arrays."
)
_N = flags.DEFINE_integer("n", 1 << 20, "Floats per array.", lower_bound=1, upper_bound=2**31 - 1)
_CACHE_DIR = flags.DEFINE_string(
    "cache_dir", None, "Cache folder, kept afterwards; default: an empty temporary one."
)

_SCALE = """
__global__ void scale(float* out, const float* x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = factor * x[i];
}
"""

_SILU = """
#include <quickstart/silu.hpp>

__global__ void apply_silu(float* out, const float* x, int n) {
  int stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = silu(x[i]);
}
"""

_BLOCK = 256
_REPEATS = 100  # of what takes microseconds
_TOLERANCE = 2e-6  # a few roundings of float32 at |x| <= 4


@dataclasses.dataclass(frozen=True)
class _Row:
    """What one process saw of one kernel; times in seconds."""

    kernel: str
    first_call: float
    memory_hit: float
    launch: float
    max_error: float


@dataclasses.dataclass(frozen=True)
class _Report:
    rows: list[_Row]
    compiled: int


class _HostArrays:
    """An input and an output where Host kernels find them."""

    def __init__(self, values: np.ndarray) -> None:
        self.x, self.out = values, np.empty_like(values)

    def clear(self) -> None:
        self.out.fill(np.nan)

    def wait(self) -> None:
        """A launch on the CPU is over when it returns."""

    def result(self) -> np.ndarray:
        return self.out


class _CudaArrays:
    """The same in the memory of a GPU."""

    def __init__(self, values: np.ndarray) -> None:
        self._torch = importlib.import_module("torch")  # Not needed for the CPU.
        self.x = self._torch.from_numpy(values).cuda()
        self.out = self._torch.empty_like(self.x)

    def clear(self) -> None:
        self.out.fill_(float("nan"))
        self.wait()

    def wait(self) -> None:
        self._torch.cuda.synchronize()

    def result(self) -> np.ndarray:
        return self.out.cpu().numpy()


_ARRAYS = {"host": _HostArrays, "cuda": _CudaArrays}


def _measure(backend: str, n: int, cache_dir: str) -> _Report:
    """Compiles, launches and checks both kernels in the calling process."""
    os.environ["QUICKSTART_JIT_CACHE_DIR"] = cache_dir
    jit = deep_jit.Runtime(
        backend,
        env_prefix="QUICKSTART",
        include_dirs=[Path(__file__).resolve().parent / "include"],
        include_prefixes=["quickstart/"],
    )
    values = np.linspace(-4, 4, n, dtype=np.float32)
    exact = values.astype(np.float64)
    arrays = _ARRAYS[backend](values)
    x, out = arrays.x, arrays.out

    def measure(
        name: str, source: str, launch: Callable[[Any], None], expected: np.ndarray
    ) -> _Row:
        start = time.perf_counter()
        kernel = jit.compile(name, source)
        first_call = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(_REPEATS):
            kernel = jit.compile(name, source)
        memory_hit = (time.perf_counter() - start) / _REPEATS
        arrays.clear()
        start = time.perf_counter()
        launch(kernel)
        arrays.wait()
        elapsed = time.perf_counter() - start
        error = float(np.max(np.abs(arrays.result() - expected)))
        return _Row(name, first_call, memory_hit, elapsed, error)

    blocks = -(-n // _BLOCK)
    rows = [
        measure(
            "scale", _SCALE, lambda kernel: kernel[blocks, _BLOCK](out, x, 1.5, n), exact * 1.5
        ),
        measure(
            "silu",
            _SILU,
            lambda kernel: kernel.launch(grid=min(blocks, 64), block=_BLOCK, args=(out, x, n)),
            exact / (1.0 + np.exp(-exact)),
        ),
    ]
    info = jit.cache_info()
    return _Report(rows, info.published + info.publish_races + info.healed + info.kept_private)


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def _print_table(first: _Report, second: _Report) -> None:
    heads = ["kernel", "first call", "memory hit", "disk hit, 2nd process", "launch", "max error"]
    lines = [
        [
            here.kernel,
            _duration(here.first_call),
            _duration(here.memory_hit),
            _duration(there.first_call),
            _duration(here.launch),
            f"{max(here.max_error, there.max_error):.1e}",
        ]
        for here, there in zip(first.rows, second.rows, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    for line in [heads, *lines]:
        name, *cells = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join([line[0].ljust(len(name)), *cells]))


def _print_disk(cache_dir: Path) -> None:
    """Lists the entries that the quickstart made, with the size of each file in bytes."""
    print(f"\nOn disk, in {cache_dir / 'cache'}:")
    for entry in sorted((cache_dir / "cache").iterdir()):
        print(f"  {entry.name}/")
        for file in sorted(path for path in entry.rglob("*") if path.is_file()):
            print(f"    {file.relative_to(entry)!s:24}{file.stat().st_size:>10,}")


def _failures(first: _Report, second: _Report) -> list[str]:
    """What is wrong, in words; empty when all is well."""
    problems = [
        f"{row.kernel}: max error {row.max_error:.1e} in the {where} process, expected at most "
        f"{_TOLERANCE}"
        for where, report in (("first", first), ("second", second))
        for row in report.rows
        if not row.max_error <= _TOLERANCE  # a NaN is wrong too
    ]
    if second.compiled:
        problems.append(f"the second process compiled {second.compiled} kernels, 0 expected")
    return problems


def _run(backend: str, n: int, cache_dir: Path) -> int:
    print(
        f"DeepJIT quickstart: backend {backend}, {n:,} floats, "
        f"Python {platform.python_version()}, NumPy {np.__version__}\n"
    )
    try:
        first = _measure(backend, n, str(cache_dir))
        # A process of its own, that shares nothing with this one but the disk.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            second = pool.submit(_measure, backend, n, str(cache_dir)).result()
    except (deep_jit.DeepJITError, ImportError) as error:
        print(f"quickstart failed: {error}", file=sys.stderr)
        return 1
    _print_table(first, second)
    print(
        f"\nCompiled: {first.compiled} kernels in the first process, "
        f"{second.compiled} in the second."
    )
    _print_disk(cache_dir)
    problems = _failures(first, second)
    for problem in problems:
        print(f"quickstart failed: {problem}", file=sys.stderr)
    return 1 if problems else 0


def main(argv: list[str]) -> int:
    """Runs the quickstart; the result is the exit code."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    if _CACHE_DIR.value is not None:
        return _run(_BACKEND.value, _N.value, Path(_CACHE_DIR.value).absolute())
    with tempfile.TemporaryDirectory(prefix="deep_jit_quickstart.") as directory:
        return _run(_BACKEND.value, _N.value, Path(directory))


if __name__ == "__main__":
    app.run(main)
