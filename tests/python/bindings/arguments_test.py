# SPDX-License-Identifier: MIT
"""Conversion of Python arguments (python/bindings/arguments.cc, arrays.cc)."""

import struct
from typing import Any, ClassVar

import deep_jit
import numpy as np
import pytest

_INTEGERS = {
    "signed char": np.int8,
    "short": np.int16,
    "int": np.int32,
    "long long": np.int64,
    "unsigned char": np.uint8,
    "unsigned short": np.uint16,
    "unsigned": np.uint32,
    "unsigned long long": np.uint64,
}


def _echo(runtime: deep_jit.Runtime, c_type: str) -> deep_jit.Kernel:
    """A kernel that writes its second argument through its first."""
    return runtime.compile(
        "echo", f"__global__ void echo({c_type}* out, {c_type} value) {{ *out = value; }}"
    )


def _launch(kernel: deep_jit.Kernel, *arguments: Any) -> None:
    kernel[1, 1](*arguments)


@pytest.mark.parametrize("c_type", _INTEGERS)
def test_integers_are_exact_up_to_their_limits(runtime: deep_jit.Runtime, c_type: str) -> None:
    dtype = _INTEGERS[c_type]
    limits = np.iinfo(dtype)
    kernel = _echo(runtime, c_type)
    out = np.zeros(1, dtype)
    for value in (limits.min, limits.max, 1, 0):
        for argument in (value, dtype(value)):
            out[0] = 77
            _launch(kernel, out, argument)
            assert int(out[0]) == value
    for value in (limits.min - 1, limits.max + 1, 10**30, -(10**30), 10**5000):
        out[0] = 77
        with pytest.raises(deep_jit.LaunchError, match="out of range") as raised:
            _launch(kernel, out, value)
        assert raised.value.kernel == "echo"
        assert raised.value.parameter == 1
        assert "`echo`" in str(raised.value)
        assert "parameter 1" in str(raised.value)
        assert int(out[0]) == 77


def test_bool_and_index_objects_are_integers(runtime: deep_jit.Runtime) -> None:
    class Seven:
        def __index__(self) -> int:
            return 7

    kernel = _echo(runtime, "int")
    out = np.zeros(1, np.int32)
    for argument, expected in ((True, 1), (np.True_, 1), (np.False_, 0), (Seven(), 7)):
        _launch(kernel, out, argument)
        assert out[0] == expected


@pytest.mark.parametrize(
    "argument",
    [1.0, np.float32(1), "1", None, b"1234", 1j, np.ones(1, np.int32), [1], np.datetime64(1, "s")],
)
def test_what_is_no_integer_is_refused(runtime: deep_jit.Runtime, argument: Any) -> None:
    out = np.full(1, 77, np.int32)
    with pytest.raises(
        deep_jit.LaunchError, match=r"parameter 1 \(int32\) must be an int, not"
    ) as raised:
        _launch(_echo(runtime, "int"), out, argument)
    assert raised.value.parameter == 1
    assert out[0] == 77


@pytest.mark.parametrize("c_type, dtype", [("float", np.float32), ("double", np.float64)])
def test_floats_take_every_number_and_round(
    runtime: deep_jit.Runtime, c_type: str, dtype: Any
) -> None:
    kernel = _echo(runtime, c_type)
    out = np.zeros(1, dtype)
    cases = [
        0.1,
        -0.0,
        3,
        True,
        float("inf"),
        float("-inf"),
        2**100,
        np.float32(0.1),
        np.float16(0.5),
        np.int8(-3),
    ]
    for argument in [*cases, np.longdouble(0.25), float(np.finfo(dtype).max)]:
        _launch(kernel, out, argument)
        assert out[0].tobytes() == dtype(argument).tobytes(), argument
    _launch(kernel, out, float("nan"))
    assert np.isnan(out[0])


def test_float_overflow_is_refused(runtime: deep_jit.Runtime) -> None:
    out32, out64 = np.full(1, 77, np.float32), np.full(1, 77, np.float64)
    for value in (1e39, -1e39, 10**39, 10**400):
        with pytest.raises(deep_jit.LaunchError, match=r"out of range.*3\.4e38"):
            _launch(_echo(runtime, "float"), out32, value)
    with pytest.raises(deep_jit.LaunchError, match=r"out of range.*1\.8e308"):
        _launch(_echo(runtime, "double"), out64, 10**400)
    assert (out32[0], out64[0]) == (77, 77)


@pytest.mark.parametrize(
    "argument", ["1.0", None, 1j, np.complex64(1), np.ones(1, np.float32), b"1234"]
)
def test_what_is_no_float_is_refused(runtime: deep_jit.Runtime, argument: Any) -> None:
    with pytest.raises(deep_jit.LaunchError, match=r"parameter 1 \(float32\) must be a float, not"):
        _launch(_echo(runtime, "float"), np.zeros(1, np.float32), argument)


def test_bool_takes_bools_zero_and_one(runtime: deep_jit.Runtime) -> None:
    kernel = _echo(runtime, "bool")
    out = np.zeros(1, np.bool_)
    for argument in (True, False, np.True_, np.False_, 1, 0):
        _launch(kernel, out, argument)
        assert out[0] == argument
    with pytest.raises(deep_jit.LaunchError, match="True, False, 0 or 1"):
        _launch(kernel, out, 2)
    with pytest.raises(deep_jit.LaunchError, match="must be a bool, not float"):
        _launch(kernel, out, 1.0)


def test_structs_are_bytes_of_their_size(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile(
        "pair",
        "struct alignas(64) Pair { int first; double second; };\n"
        "__global__ void pair(double* out, Pair p) { out[0] = p.first; out[1] = p.second; }",
    )
    out = np.zeros(2)
    _launch(kernel, out, struct.pack("=i4xd48x", 5, 0.25))
    assert out.tolist() == [5, 0.25]
    with pytest.raises(deep_jit.LaunchError, match="must be bytes of length 64, not of length 63"):
        _launch(kernel, out, bytes(63))
    with pytest.raises(deep_jit.LaunchError, match="must be bytes of length 64, not int"):
        _launch(kernel, out, 5)


def test_more_parameters_than_fit_inline(runtime: deep_jit.Runtime) -> None:
    count = 40
    declared = ", ".join(f"{'double' if i % 2 else 'signed char'} v{i}" for i in range(count))
    stores = " ".join(f"out[{i}] = v{i};" for i in range(count))
    kernel = runtime.compile(
        "many", f"__global__ void many(double* out, {declared}) {{ {stores} }}"
    )
    out = np.zeros(count)
    _launch(kernel, out, *range(count))
    assert out.tolist() == list(range(count))


@pytest.mark.parametrize("given", [0, 1, 3])
def test_wrong_argument_count(runtime: deep_jit.Runtime, given: int) -> None:
    with pytest.raises(
        deep_jit.LaunchError, match=f"2 parameters, but {given} arguments"
    ) as raised:
        _launch(_echo(runtime, "int"), *[np.zeros(1, np.int32), 1, 1][:given])
    assert (raised.value.kernel, raised.value.parameter) == ("echo", None)


# --- Arrays ---


@pytest.fixture
def add_one(runtime: deep_jit.Runtime) -> deep_jit.Kernel:
    return runtime.compile(
        "add_one",
        "__global__ void add_one(float* out, const float* x)"
        "{ out[threadIdx.x] = x[threadIdx.x] + 1; }",
    )


def test_arrays_are_used_in_place(add_one: deep_jit.Kernel) -> None:
    class Sub(np.ndarray):
        pass

    x = np.arange(6, dtype=np.float32)
    for out in (
        np.zeros(6, np.float32),
        np.zeros((2, 3), np.float32),
        np.zeros(6, np.float32).view(Sub),
    ):
        add_one[1, 6](out, x)
        assert out.ravel().tolist() == [1, 2, 3, 4, 5, 6]
    part = np.zeros(10, np.float32)
    add_one[1, 6](part[2:8], x)
    assert part.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 0, 0]
    zero_dimensional = np.zeros((), np.float32)
    add_one[1, 1](zero_dimensional, x)
    assert zero_dimensional == 1


def test_none_is_the_null_pointer_and_empty_arrays_pass(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile(
        "is_null", "__global__ void is_null(int* out, const void* p) { *out = p == nullptr; }"
    )
    out = np.full(1, 77, np.int32)
    kernel[1, 1](out, None)
    assert out[0] == 1
    kernel[1, 1](out, np.zeros(3))
    assert out[0] == 0
    kernel[1, 1](out, np.zeros((0, 4)))


def _misaligned() -> np.ndarray:
    return np.zeros(17, np.uint8)[1:].view(np.float32)


def _read_only() -> np.ndarray:
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "argument, problem",
    [
        (1, "must be a NumPy array, a torch CPU tensor, .* or None, not int"),
        (0, "must be a NumPy array"),
        (1.5, "must be a NumPy array"),
        ([1.0], "must be a NumPy array"),
        ("text", "must be a NumPy array"),
        (np.float32(1), "must be a NumPy array.*not float32"),
        (np.zeros((4, 4), np.float32)[:, ::2], "not C-contiguous"),
        (np.zeros((4, 4), np.float32).T, "not C-contiguous"),
        (np.zeros(4, np.float32)[::-1], "not C-contiguous"),
        (_misaligned(), "not aligned"),
        (np.zeros(4, ">f4"), "byte order"),
        (np.zeros(4, object), "Python objects"),
        (np.zeros(4, np.float64), r"parameter 0 \(float32\*\) is an array of float64"),
        (np.zeros(4, np.int32), "is an array of int32"),
        (np.zeros(4, np.complex64), "is an array of complex64"),
        (_read_only(), "read-only"),
    ],
)
def test_arrays_that_would_be_misread_are_refused(
    add_one: deep_jit.Kernel, argument: Any, problem: str
) -> None:
    with pytest.raises(deep_jit.LaunchError, match=problem) as raised:
        add_one[1, 1](argument, np.zeros(4, np.float32))
    assert (raised.value.kernel, raised.value.parameter) == ("add_one", 0)


def test_read_only_arrays_pass_for_pointers_to_const(add_one: deep_jit.Kernel) -> None:
    out = np.zeros(4, np.float32)
    add_one[1, 4](out, _read_only())
    assert out.tolist() == [1, 1, 1, 1]


def test_raw_memory_pointers_take_every_dtype(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile(
        "first_byte",
        "__global__ void first_byte"
        "(unsigned char* out, const void* a, const char* b, const unsigned* c)"
        "{ out[0] = *(const unsigned char*)a; out[1] = *b; out[2] = *c; }",
    )
    out = np.zeros(3, np.uint8)
    kernel[1, 1](
        out,
        np.array([1 + 2**40]),
        np.array([2], np.float32).view(np.uint16),
        np.array([3], np.int32),
    )
    assert out.tolist() == [1, 0, 3]


def test_arrays_of_other_libraries(add_one: deep_jit.Kernel) -> None:
    class Foreign:
        """Speaks the array interface, but is no NumPy array."""

        def __init__(self, array: np.ndarray, **changes: Any) -> None:
            self.array = array  # keeps the memory
            self.__array_interface__ = array.__array_interface__ | changes

    class ForeignStruct:
        def __init__(self, array: np.ndarray) -> None:
            self.__array_struct__ = array.__array_struct__

    class OnCuda:
        __cuda_array_interface__: ClassVar[dict[str, Any]] = {}

    x = np.arange(4, dtype=np.float32)
    for out in (
        Foreign(np.zeros(4, np.float32)),
        Foreign(np.zeros((2, 2), np.float32), strides=(8, 4)),
    ):
        add_one[1, 4](out, ForeignStruct(x))
        assert out.array.ravel().tolist() == [1, 2, 3, 4]
    refused = [
        (Foreign(np.zeros((2, 2), np.float32), strides=(4, 8)), "not C-contiguous"),
        (Foreign(np.zeros(2)), "array of float64"),
        (Foreign(np.zeros(2, ">f4")), "byte order"),
        (Foreign(_read_only()), "read-only"),
        (Foreign(np.zeros(2, np.float32), data=None), "without an address"),
        (Foreign(np.zeros(2, np.float32), typestr=None), "without a typestr"),
        (Foreign(np.zeros(2, np.float32), shape=None), "without a shape"),
        (Foreign(np.zeros(2, np.float32), data=(x.ctypes.data + 1, False)), "not aligned"),
        (OnCuda(), "CUDA device"),
    ]
    for argument, problem in refused:
        with pytest.raises(deep_jit.LaunchError, match=problem):
            add_one[1, 1](argument, x)


def test_errors_of_properties_are_passed_on(add_one: deep_jit.Kernel) -> None:
    class Broken:
        @property
        def __array_interface__(self) -> dict[str, Any]:
            raise ZeroDivisionError("from the property")

    with pytest.raises(ZeroDivisionError, match="from the property"):
        add_one[1, 1](Broken(), None)
