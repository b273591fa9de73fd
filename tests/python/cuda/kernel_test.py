# SPDX-License-Identifier: MIT
"""deep_jit.CudaKernel and its launches (python/bindings/{cuda_kernel_type,stream}.cc)."""

import struct
import types
from collections.abc import Callable
from typing import Any

import deep_jit
import pytest

Load = Callable[..., deep_jit.CudaKernel]

_INVALID_VALUE = 1
_NUM_REGS, _SHARED, _LOCAL, _CONST, _MAX_THREADS = 4, 1, 3, 2, 0


def _every_way(kernel: deep_jit.CudaKernel, **options: Any) -> list[Callable[[], None]]:
    return [
        lambda: kernel[8, 32](5, **options),
        lambda: kernel.launch(grid=8, block=32, args=(5,), **options),
    ]


@pytest.mark.parametrize(
    "grid, block, expected",
    [
        (3, 2, ([3, 1, 1], [2, 1, 1])),
        ((3,), [2], ([3, 1, 1], [2, 1, 1])),
        ((2, 3, 4), (5, 6), ([2, 3, 4], [5, 6, 1])),
    ],
)
def test_grid_and_block(load: Load, driver: Any, grid: Any, block: Any, expected: Any) -> None:
    kernel = load("_Z1ki", 4)
    kernel[grid, block](5)
    kernel.launch(grid=grid, block=block, args=[5])
    for launch in driver.take_launches():
        assert (launch["grid"], launch["block"]) == expected
        assert launch["arguments"] == [struct.pack("i", 5).hex()]
        assert (launch["smem"], launch["stream"], launch["attributes"]) == (0, 0, {})
    bound = kernel[grid, block].__self__
    assert isinstance(bound, deep_jit.CudaBoundLaunch)
    assert (list(bound.grid), list(bound.block)) == expected


def test_launches_of_one_shape_are_kept(load: Load, driver: Any) -> None:
    kernel, other = load("k", 4), load("k", 4)
    first = kernel[1, 2]
    assert kernel[(1, 1), 2] is first
    assert other[1, 2] is not first
    shapes = [(n % 7 + 1, n % 3 + 1) for n in range(50)]
    for grid, block in shapes:
        kernel[grid, block](0)
        assert kernel[grid, block] is kernel[grid, block]
    assert [(one["grid"][0], one["block"][0]) for one in driver.take_launches()] == shapes
    assert kernel[1, 2] is not first  # it was the oldest
    first(0)
    del kernel
    first(0)
    assert [launch["block"] for launch in driver.take_launches()] == [[2, 1, 1]] * 2


class _Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 0x5000)


@pytest.mark.parametrize(
    "stream, expected",
    [
        (0x7000, 0x7000),
        (0, 0),
        (1, 1),
        (types.SimpleNamespace(cuda_stream=0x6000), 0x6000),
        (_Protocol(), 0x5000),
        (types.SimpleNamespace(__cuda_stream__=(0, 0x4000)), 0x4000),
        (types.SimpleNamespace(ptr=0x3000), 0x3000),
        (None, 0),
    ],
)
def test_streams(load: Load, driver: Any, stream: Any, expected: int) -> None:
    for launch in _every_way(load("_Z1ki", 4), stream=stream):
        launch()
        (made,) = driver.take_launches()
        assert made["stream"] == expected


@pytest.mark.parametrize(
    "stream",
    [
        "0",
        1.0,
        True,
        object(),
        types.SimpleNamespace(cuda_stream="x"),
        types.SimpleNamespace(__cuda_stream__=5),
    ],
)
def test_what_is_no_stream(load: Load, driver: Any, stream: Any) -> None:
    for launch in _every_way(load("_Z1ki", 4), stream=stream):
        with pytest.raises(TypeError, match="stream must be an int"):
            launch()
    assert driver.take_launches() == []


def test_every_option(load: Load, driver: Any) -> None:
    kernel = load("_Z1ki", 4)
    for options, expected in (
        ({"num_smem_bytes": 1024}, (1024, {})),
        ({"cluster_dim": 2}, (0, {"cluster": [2, 1, 1]})),
        ({"cluster_dim": (4, 1, 1)}, (0, {"cluster": [4, 1, 1]})),
        ({"cooperative": True}, (0, {"cooperative": 1})),
        ({"enable_pdl": True}, (0, {"pdl": 1})),
        ({"cooperative": False, "enable_pdl": None, "num_smem_bytes": None}, (0, {})),
        (
            {"cooperative": True, "enable_pdl": True, "cluster_dim": 8, "num_smem_bytes": 64},
            (64, {"cooperative": 1, "pdl": 1, "cluster": [8, 1, 1]}),
        ),
    ):
        for launch in _every_way(kernel, **options):
            launch()
            (made,) = driver.take_launches()
            assert (made["smem"], made["attributes"]) == expected, options
    kernel[16, 32](5, cluster_dim=16, nonportable_cluster_size_allowed=True)
    (made,) = driver.take_launches()
    assert made["attributes"] == {"cluster": [16, 1, 1]}
    # Options of one launch are not those of the next.
    kernel[16, 32](5)
    (made,) = driver.take_launches()
    assert (made["smem"], made["attributes"]) == (0, {})


@pytest.mark.parametrize(
    "options, error, problem",
    [
        ({"num_smem_bytes": -1}, deep_jit.LaunchError, "must not be negative, but is -1"),
        ({"num_smem_bytes": 2**31}, deep_jit.LaunchError, "num_smem_bytes must fit into 32 bits"),
        ({"num_smem_bytes": "1"}, TypeError, "num_smem_bytes must be int or None, not str"),
        ({"cluster_dim": 3}, deep_jit.LaunchError, "must be made of whole clusters"),
        ({"cluster_dim": 0}, deep_jit.LaunchError, "cluster dimension must be positive"),
        ({"cluster_dim": "2"}, deep_jit.LaunchError, "cluster_dim must be an int or a tuple"),
        ({"cooperative": 1}, TypeError, "cooperative must be True, False or None, not int: 1"),
        (
            {"num_threads": 1},
            TypeError,
            "unexpected keyword argument 'num_threads'; the options are: stream, num_smem_bytes, "
            "cluster_dim, cooperative, enable_pdl, nonportable_cluster_size_allowed",
        ),
        ({"grid_dim": 1}, TypeError, "unexpected keyword argument 'grid_dim'"),
    ],
)
def test_wrong_options(
    load: Load, driver: Any, options: dict[str, Any], error: type[Exception], problem: str
) -> None:
    for launch in _every_way(load("_Z1ki", 4), **options):
        with pytest.raises(error, match=problem):
            launch()
    assert driver.take_launches() == []


def test_wrong_dimensions(load: Load, driver: Any) -> None:
    kernel = load("_Z1ki", 4)
    for grid, block, problem in (
        (0, 1, "grid dimensions must be positive"),
        (1, (1, 0), "block dimensions must be positive"),
        (1, (1, 1, 1, 1), "block must have one to three dimensions, not 4"),
        ("1", 1, "grid must be an int or a tuple"),
    ):
        with pytest.raises(deep_jit.LaunchError, match=problem) as raised:
            kernel[grid, block](5)
        assert raised.value.kernel == "k"
    with pytest.raises(deep_jit.LaunchError, match="grid and block dimension must be specified"):
        kernel[1]  # type: ignore[index]
    with pytest.raises(deep_jit.LaunchError, match="grid dimension must be specified"):
        kernel.launch(block=1, args=(5,))  # type: ignore[call-arg]
    assert driver.take_launches() == []


def test_what_the_driver_refuses(load: Load, driver: Any) -> None:
    kernel = load("_Z3fooi", 4)
    driver.fail("cuLaunchKernelEx", _INVALID_VALUE)
    for launch in _every_way(kernel):
        with pytest.raises(deep_jit.LaunchError, match=r"foo.*CUDA_ERROR_INVALID_VALUE") as raised:
            launch()
        assert (raised.value.kernel, raised.value.parameter) == ("foo", None)


def test_a_thread_without_a_context(load: Load, driver: Any) -> None:
    kernel = load("_Z1ki", 4)
    kernel[1, 1](5)
    driver.set_device(-1)
    kernel[1, 1](5)
    one, other = driver.take_launches()
    assert one["context"] == other["context"]


def test_attributes_name_and_params(load: Load, driver: Any) -> None:
    kernel = load("_ZN3lib5scaleIfEEvPT_PKS1_ilb4Data", 8, 8, 4, 8, 1, 48)
    assert kernel.name == "lib::scale<float>"
    assert repr(kernel) == "<deep_jit.CudaKernel 'lib::scale<float>' with 6 parameters>"
    assert [tuple(param) for param in kernel.params] == [
        ("pointer", 8, 0),
        ("pointer", 8, 8),
        ("signed", 4, 16),
        ("signed", 8, 20),
        ("bool", 1, 28),
        ("struct", 48, 29),
    ]
    asked = driver.count("cuKernelGetAttribute")
    for attribute, value in (
        (_NUM_REGS, 32),
        (_SHARED, 1024),
        (_LOCAL, 16),
        (_CONST, 352),
        (_MAX_THREADS, 512),
    ):
        driver.set_function_attribute(attribute, value)
    assert driver.count("cuKernelGetAttribute") == asked  # only now:
    attributes = kernel.attributes
    assert isinstance(attributes, deep_jit.KernelAttributes)
    assert tuple(attributes) == (32, 1024, 16, 352, 512)
    assert (attributes.num_regs, attributes.max_threads_per_block) == (32, 512)


def test_equality_and_construction(load: Load, cuda: Any) -> None:
    load("k")
    one, again = (cuda.compile("one", "__global__ void one() {}") for _ in range(2))
    other = cuda.compile("two", "__global__ void two() {}")
    assert one == again != other
    assert hash(one) == hash(again)
    for name in ("CudaKernel", "CudaBoundLaunch"):
        handle_type = getattr(deep_jit, name)
        with pytest.raises(TypeError):
            handle_type()
        with pytest.raises(TypeError):
            type("Sub", (handle_type,), {})


def test_no_reference_is_lost_or_kept(load: Load, find_leaks: Callable[..., list[object]]) -> None:
    kernel = load("_Z1ki", 4)
    grid, block, stream = (2, 1, 1), (4, 1), types.SimpleNamespace(cuda_stream=7)
    shapes = iter(range(1, 10**9))

    def exercise() -> None:
        kernel[grid, block](5, stream=stream, cluster_dim=grid)
        kernel[next(shapes), 1](5)  # a new one each time
        kernel.launch(grid=grid, block=block, args=(5,), stream=stream)
        _ = kernel.params, kernel.attributes, kernel.name, repr(kernel), kernel == 1
        refused = 0
        for wrong in ({"stream": grid}, {"cluster_dim": stream}, {"what": stream}):
            try:
                kernel[grid, block](5, **wrong)
            except (TypeError, deep_jit.LaunchError):
                refused += 1
        assert refused == 3

    watched = [grid, block, stream, kernel, type(kernel), deep_jit.CudaBoundLaunch]
    assert not find_leaks(exercise, [*watched, deep_jit.CudaParam, deep_jit.KernelAttributes])
