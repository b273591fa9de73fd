# SPDX-License-Identifier: MIT
"""deep_jit.Kernel and deep_jit.BoundLaunch (python/bindings/kernel_type.cc)."""

from collections.abc import Callable
from typing import Any

import deep_jit
import numpy as np
import pytest


@pytest.fixture
def count(runtime: deep_jit.Runtime) -> deep_jit.Kernel:
    """Writes 1 + its linear index, and what it sees of its grid."""
    return runtime.compile(
        "count",
        """
        __global__ void count(int* out, int* shape) {
          unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
          unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
          out[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1;
          if (block + thread == 0) {
            const unsigned seen[] = {gridDim.x, gridDim.y, gridDim.z,
                                     blockDim.x, blockDim.y, blockDim.z};
            for (int i = 0; i < 6; ++i) shape[i] = seen[i];
          }
        }
        """,
    )


@pytest.mark.parametrize(
    "grid, block, expected",
    [
        (3, 2, (3, 1, 1, 2, 1, 1)),
        ((3,), [2], (3, 1, 1, 2, 1, 1)),
        ((2, 3), (4, 5), (2, 3, 1, 4, 5, 1)),
        ([2, 3, 4], (1, 2, 3), (2, 3, 4, 1, 2, 3)),
        (np.int64(3), (np.uint8(2), True), (3, 1, 1, 2, 1, 1)),
    ],
)
def test_grid_and_block(
    count: deep_jit.Kernel, grid: Any, block: Any, expected: tuple[int, ...]
) -> None:
    def launches() -> list[Any]:
        return [
            count[grid, block],
            lambda *args: count.launch(grid=grid, block=block, args=args),
            lambda *args: count.launch(args=list(args), num_threads=1, block=block, grid=grid),
            lambda *args: count.launch(grid=grid, block=block, args=args, num_threads=7),
        ]

    for launch in launches():
        out, shape = np.zeros(np.prod(expected), np.int32), np.zeros(6, np.int32)
        launch(out, shape)
        assert tuple(shape) == expected
        assert (out == 1).all()


def test_a_bound_launch_can_be_kept(count: deep_jit.Kernel) -> None:
    launch = count[(2, 3), 4]
    bound = launch.__self__
    assert isinstance(bound, deep_jit.BoundLaunch)
    assert (bound.grid, bound.block) == ((2, 3, 1), (4, 1, 1))
    del count
    out, shape = np.zeros(24, np.int32), np.zeros(6, np.int32)
    for _ in range(3):
        launch(out, shape)
    bound.launch(out, shape)
    assert (out == 4).all()


@pytest.mark.parametrize(
    "grid, block, problem",
    [
        (0, 1, r"grid dimensions must be positive"),
        (1, (1, 0), r"block dimensions must be positive"),
        (-1, 1, "grid dimensions must be positive"),
        (1, -(10**30), "block dimensions must be positive"),
        (2**32, 1, r"grid dimensions must be below 2\*\*32"),
        (10**30, 1, r"grid dimensions must be below 2\*\*32"),
        ((), 1, "grid must have one to three dimensions, not 0"),
        (1, (1, 1, 1, 1), "block must have one to three dimensions, not 4"),
        (1.0, 1, "grid must be an int or a tuple"),
        (1, ("2",), "block must be an int or a tuple"),
    ],
)
def test_wrong_dimensions(count: deep_jit.Kernel, grid: Any, block: Any, problem: str) -> None:
    arguments = np.zeros(1, np.int32), np.zeros(6, np.int32)
    with pytest.raises(deep_jit.LaunchError, match=problem) as raised:
        count[grid, block](*arguments)
    assert raised.value.kernel == "count"
    assert raised.value.parameter is None
    with pytest.raises(deep_jit.LaunchError, match=problem):
        count.launch(grid=grid, block=block, args=arguments)
    assert arguments[0][0] == 0


def test_missing_dimensions(count: deep_jit.Kernel) -> None:
    arguments = np.zeros(1, np.int32), np.zeros(6, np.int32)
    with pytest.raises(deep_jit.LaunchError, match="grid and block dimension must be specified"):
        count[1]  # type: ignore[index]
    with pytest.raises(deep_jit.LaunchError, match="grid dimension must be specified"):
        count.launch(block=1, args=arguments)  # type: ignore[call-arg]
    with pytest.raises(deep_jit.LaunchError, match="block dimension must be specified"):
        count.launch(grid=1, block=None, args=arguments)  # type: ignore[arg-type]


def test_launch_keywords(count: deep_jit.Kernel) -> None:
    with pytest.raises(TypeError, match="keyword arguments only"):
        count.launch(1, 1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="unexpected keyword argument 'stream'"):
        count.launch(grid=1, block=1, stream=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="args must be a tuple or a list"):
        count.launch(grid=1, block=1, args=np.zeros(2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the options are: num_smem_bytes, num_threads"):
        count[1, 1](stream=3)  # type: ignore[call-arg]
    out, shape = np.zeros(1, np.int32), np.zeros(6, np.int32)
    for name, bad, problem in (
        ("num_threads", 0, "num_threads must be positive, but is 0"),
        ("num_threads", -1, "num_threads must be positive, but is -1"),
        ("num_threads", 2**31, "num_threads must fit into 32 bits"),
        ("num_threads", -(10**30), "num_threads must fit into 32 bits"),
        ("num_smem_bytes", -1, "shared-memory size must not be negative, but is -1"),
        ("num_smem_bytes", 2**30, "shared-memory size must be at most"),
    ):
        for call in (
            lambda **options: count.launch(grid=1, block=1, args=(out, shape), **options),
            lambda **options: count[1, 1](out, shape, **options),
        ):
            with pytest.raises(deep_jit.LaunchError, match=problem) as raised:
                call(**{name: bad})
            assert raised.value.kernel == "count"
    for value in ("2", True, 1.0):
        with pytest.raises(TypeError, match="num_threads must be int or None, not"):
            count.launch(grid=1, block=1, num_threads=value)  # type: ignore[arg-type]
    assert out[0] == 0
    count[1, 1](out, shape, num_threads=None, num_smem_bytes=None)
    assert out[0] == 1


def test_dynamic_shared_memory(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile(
        "turn",
        """
        __global__ void turn(int* out) {
          extern __shared__ int smem[];
          smem[threadIdx.x] = threadIdx.x;
          __syncthreads();
          out[threadIdx.x] = smem[blockDim.x - 1 - threadIdx.x];
        }
        """,
    )
    launch = kernel[1, 256]
    for call in (
        lambda out: launch(out, num_smem_bytes=1024),
        lambda out: launch(out, num_smem_bytes=np.int64(1024), num_threads=2),
        lambda out: kernel.launch(grid=1, block=256, args=(out,), num_smem_bytes=1024),
    ):
        out = np.full(256, -1, np.int32)
        call(out)
        assert (out == np.arange(255, -1, -1)).all()


def test_args_default_to_none_at_all(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile("empty", "__global__ void empty() {}")
    kernel.launch(grid=1, block=1)
    kernel[1, 1]()


def test_an_exception_of_the_kernel_reaches_python(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile(
        "thrower",
        "#include <stdexcept>\n"
        "__global__ void thrower(unsigned at)"
        '{ if (blockIdx.x == at) throw std::runtime_error("text"); }',
    )
    with pytest.raises(deep_jit.LaunchError, match=": text") as raised:
        kernel[8, 1](5)
    assert raised.value.kernel == "thrower"
    kernel[8, 1](99)


def test_name_params_and_repr(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile(
        "tag_of_it",
        "struct S { double d[3]; };\n"
        "__global__ void all_kinds"
        "(const float* a, void* b, bool c, short d, unsigned long long e, double f, S g) {}",
    )
    assert kernel.name == "all_kinds"
    assert repr(kernel) == "<deep_jit.Kernel 'all_kinds' with 7 parameters>"
    assert [tuple(param) for param in kernel.params] == [
        ("pointer", 8, 8, "float", 4, True),
        ("pointer", 8, 8, "unknown", 0, False),
        ("bool", 1, 1, None, None, None),
        ("signed", 2, 2, None, None, None),
        ("unsigned", 8, 8, None, None, None),
        ("float", 8, 8, None, None, None),
        ("struct", 24, 8, None, None, None),
    ]
    first = kernel.params[0]
    assert isinstance(first, deep_jit.Param)
    assert (first.kind, first.element_kind, first.element_is_const) == ("pointer", "float", True)


def test_equality_is_that_of_the_loaded_kernel(runtime: deep_jit.Runtime) -> None:
    one = runtime.compile("one", "__global__ void one() {}")
    again = runtime.compile("one", "__global__ void one() {}")
    other = runtime.compile("two", "__global__ void two() {}")
    assert one == again
    assert one != other
    assert one != 1
    assert hash(one) == hash(again)
    assert {one, again, other} == {one, other}


@pytest.mark.parametrize("name", ["Kernel", "BoundLaunch"])
def test_handles_cannot_be_constructed_or_changed(name: str) -> None:
    handle_type = getattr(deep_jit, name)
    with pytest.raises(TypeError):
        handle_type()
    with pytest.raises(TypeError):
        object.__new__(handle_type)
    with pytest.raises(TypeError):
        type("Sub", (handle_type,), {})
    with pytest.raises(TypeError):
        handle_type.launch = None


def test_no_reference_is_lost_or_kept(
    count: deep_jit.Kernel, find_leaks: Callable[..., list[object]]
) -> None:
    out, shape, grid = np.zeros(4, np.int32), np.zeros(6, np.int32), (2, 1, 1)

    def exercise() -> None:
        count[grid, 2](out, shape)
        count.launch(grid=grid, block=2, args=(out, shape), num_threads=1)
        _ = count.params, count.name, repr(count), count == 1
        refused = 0
        for bad in ((out,), (out, 1.5), (out[::2], shape)):
            try:
                count[grid, 2](*bad)
            except deep_jit.LaunchError:
                refused += 1
        assert refused == 3

    types = [type(count), deep_jit.BoundLaunch, deep_jit.Param, deep_jit.LaunchError]
    assert not find_leaks(exercise, [out, shape, grid, count, *types])
