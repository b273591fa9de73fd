# SPDX-License-Identifier: MIT
"""One runtime, many threads."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import deep_jit
import numpy as np

_THREADS = 16


def _together(function: Callable[[int], Any]) -> list[Any]:
    """Calls function(index) in 16 threads that start at the same moment."""
    barrier = threading.Barrier(_THREADS)

    def call(index: int) -> Any:
        barrier.wait()
        return function(index)

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(call, range(_THREADS)))


def test_first_use_by_many_threads_compiles_once(
    own_runtime: deep_jit.Runtime, scale_source: str
) -> None:
    kernels = _together(lambda _: own_runtime.compile("scale", scale_source))
    assert len(set(kernels)) == 1
    assert own_runtime.cache_info().published == 1


def test_different_sources_do_not_mix(own_runtime: deep_jit.Runtime) -> None:
    def run(index: int) -> int:
        source = f"__global__ void answer(int* out) {{ *out = {index % 4}; }}"
        out = np.full(1, -1, np.int32)
        own_runtime.compile("answer", source)[1, 1](out)
        return int(out[0])

    assert _together(run) == [index % 4 for index in range(_THREADS)]
    assert own_runtime.cache_info().published == 4


def test_many_threads_launch_one_kernel(runtime: deep_jit.Runtime, scale_source: str) -> None:
    kernel = runtime.compile("scale", scale_source)
    launch = kernel[8, 128]

    def run(index: int) -> bool:
        x = np.full(1000, index, np.float32)
        right = True
        for _ in range(50):
            out = np.zeros(1000, np.float32)
            launch(out, x, 1000)
            right = right and bool((out == 2 * index).all())
        return right

    assert all(_together(run))


def test_many_threads_fail_alike_and_then_succeed(own_runtime: deep_jit.Runtime) -> None:
    def fail(_: int) -> type[BaseException]:
        try:
            own_runtime.compile("broken", "__global__ void broken() { undeclared(); }")
        except deep_jit.CompileError as error:
            assert "undeclared" in error.log
            return type(error)
        raise AssertionError("compiled")

    assert _together(fail) == [deep_jit.CompileError] * _THREADS
    own_runtime.compile("whole", "__global__ void whole() {}")[1, 1]()
