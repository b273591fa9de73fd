# SPDX-License-Identifier: MIT
"""Objects with the buffer protocol as kernel arguments (python/bindings/buffers.cc)."""

import array
import ctypes
import mmap
import sys
import threading
from collections.abc import Callable
from typing import Any

import deep_jit
import pytest


@pytest.fixture
def add_one(runtime: deep_jit.Runtime) -> deep_jit.Kernel:
    return runtime.compile(
        "add_one",
        "__global__ void add_one(float* out, const float* x)"
        "{ out[threadIdx.x] = x[threadIdx.x] + 1; }",
    )


@pytest.fixture
def copy(runtime: deep_jit.Runtime) -> deep_jit.Kernel:
    """Copies one byte per thread."""
    return runtime.compile(
        "copy",
        "__global__ void copy(void* out, const void* x)"
        "{ ((char*)out)[threadIdx.x] = ((const char*)x)[threadIdx.x]; }",
    )


def test_arrays_of_floats_are_used_in_place(add_one: deep_jit.Kernel) -> None:
    x = array.array("f", [1, 2, 3, 4])
    out = array.array("f", [0] * 4)
    add_one[1, 4](out, x)
    assert out.tolist() == [2, 3, 4, 5]
    c_out = (ctypes.c_float * 4)()
    add_one[1, 4](c_out, (ctypes.c_float * 2 * 2)((5, 6), (7, 8)))
    assert list(c_out) == [6, 7, 8, 9]
    view = memoryview(out)[1:3]
    add_one[1, 2](view, memoryview(x).toreadonly())
    assert out.tolist() == [2, 2, 3, 5]
    raw = bytearray(16)
    add_one[1, 4](memoryview(raw).cast("f", (2, 2)), x)
    assert memoryview(raw).cast("f").tolist() == [2, 3, 4, 5]


def test_raw_bytes(copy: deep_jit.Kernel) -> None:
    for source in (b"four", bytearray(b"four"), memoryview(b"four")):
        for out in (bytearray(4), array.array("b", bytes(4)), ctypes.create_string_buffer(4)):
            copy[1, 4](out, source)
            assert bytes(out) == b"four"
    with mmap.mmap(-1, 4) as mapped:
        copy[1, 4](mapped, b"mapp")
        assert mapped[:] == b"mapp"


_FORMATS = {
    "signed char": "b",
    "short": "h",
    "int": "i",
    "long": "l",
    "long long": "q",
    "unsigned char": "B",
    "unsigned short": "H",
    "unsigned": "I",
    "unsigned long": "L",
    "unsigned long long": "Q",
    "float": "f",
    "double": "d",
}


@pytest.mark.parametrize("c_type, code", _FORMATS.items())
def test_each_type_goes_to_its_own_pointer(
    runtime: deep_jit.Runtime, c_type: str, code: str
) -> None:
    kernel = runtime.compile(
        "first", f"__global__ void first({c_type}* out, const {c_type}* x) {{ *out = *x; }}"
    )
    for value in (array.array(code, [100]), memoryview(array.array(code, [100]))):
        out = array.array(code, [0])
        kernel[1, 1](out, value)
        assert out[0] == 100
    wrong = array.array("d" if code != "d" else "q", [0])
    if "char" not in c_type and not (code in "lqLQ" and wrong.typecode == "q"):
        with pytest.raises(deep_jit.LaunchError, match="which the kernel would misread"):
            kernel[1, 1](wrong, wrong)


@pytest.mark.parametrize(
    "c_type, ctype",
    [
        ("bool", ctypes.c_bool),
        ("int", ctypes.c_int),
        ("long", ctypes.c_long),
        ("unsigned long long", ctypes.c_ulonglong),
        ("double", ctypes.c_double),
        ("char", ctypes.c_char),
        ("void*", ctypes.c_void_p),
    ],
)
def test_ctypes(runtime: deep_jit.Runtime, c_type: str, ctype: Any) -> None:
    kernel = runtime.compile(
        "second",
        f"__global__ void second({c_type}* out, {c_type} const* x) {{ out[1] = x[1]; }}",
    )
    source, out = (ctype * 2)(), (ctype * 2)()
    source[1] = b"a" if ctype is ctypes.c_char else 1
    kernel[1, 1](out, source)
    assert bytes(out) == bytes(source) != bytes(len(bytes(out)))


def test_empty_buffers_pass(add_one: deep_jit.Kernel) -> None:
    # The grid is refused after the arguments were taken.
    with pytest.raises(deep_jit.LaunchError, match="positive"):
        add_one[0, 1](array.array("f"), memoryview(b"").cast("f"))


@pytest.mark.parametrize(
    "argument, problem",
    [
        (memoryview(bytearray(64)).cast("f")[::2], "not C-contiguous"),
        (memoryview(bytearray(64)).cast("f")[::-1], "not C-contiguous"),
        (memoryview(bytearray(17))[1:].cast("f"), "not aligned to 4 bytes"),
        (array.array("d", [0]), r"parameter 0 \(float32\*\) is an array of float64"),
        (array.array("i", [0]), "is an array of int32"),
        (bytearray(4), "is an array of uint8"),
        (memoryview(bytes(4)).cast("f"), "read-only"),
        ((ctypes.c_float.__ctype_be__ * 4)(), "byte order"),
        ((ctypes.py_object * 4)(), "Python objects"),
        ("text", "must be a NumPy array.*buffer protocol, or None, not str"),
    ],
)
def test_buffers_that_would_be_misread_are_refused(
    add_one: deep_jit.Kernel, argument: Any, problem: str
) -> None:
    with pytest.raises(deep_jit.LaunchError, match=problem) as raised:
        add_one[1, 1](argument, array.array("f", [0]))
    assert (raised.value.kernel, raised.value.parameter) == ("add_one", 0)


def test_bytes_are_never_written(copy: deep_jit.Kernel) -> None:
    with pytest.raises(deep_jit.LaunchError, match="read-only"):
        copy[1, 1](b"constant", b"x")


def test_a_released_view_is_an_error_of_its_own(add_one: deep_jit.Kernel) -> None:
    view = memoryview(array.array("f", [0]))
    view.release()
    with pytest.raises(ValueError, match="released"):
        add_one[1, 1](view, view)


def test_buffers_are_no_scalars(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile("echo", "__global__ void echo(int* out, int value) { *out = value; }")
    out = array.array("i", [0])
    for argument in (out, bytearray(4), memoryview(bytes(4)), ctypes.c_int(1)):
        with pytest.raises(deep_jit.LaunchError, match="must be an int, not"):
            kernel[1, 1](out, argument)


def test_structs_by_value(runtime: deep_jit.Runtime) -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_double))

    kernel = runtime.compile(
        "pair",
        "struct Pair { int first; double second; };\n"
        "__global__ void pair(double* out, Pair p) { out[0] = p.first; out[1] = p.second; }",
    )
    out = array.array("d", [0, 0])
    pair = Pair(5, 0.25)
    for argument in (pair, bytes(pair), bytearray(pair), memoryview(pair)):
        out[0] = out[1] = 0
        kernel[1, 1](out, argument)
        assert out.tolist() == [5, 0.25]
    for argument in (bytearray(15), (Pair * 2)()):
        with pytest.raises(
            deep_jit.LaunchError, match=f"length 16, not of length {len(bytes(argument))}"
        ):
            kernel[1, 1](out, argument)
    with pytest.raises(deep_jit.LaunchError, match="must be bytes of length 16, not str"):
        kernel[1, 1](out, "sixteen letters.")


def test_a_buffer_cannot_be_resized_while_the_kernel_runs(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile(
        "wait",
        """
        #include <time.h>
        __global__ void wait(int* flags, const char* data, char* seen) {
          __atomic_store_n(&flags[0], 1, __ATOMIC_RELEASE);
          const time_t end = time(nullptr) + 100;
          while (!__atomic_load_n(&flags[1], __ATOMIC_ACQUIRE)) if (time(nullptr) > end) return;
          *seen = *data;
        }
        """,
    )
    flags, data, seen = array.array("i", [0, 0]), bytearray(b"before"), bytearray(1)
    thread = threading.Thread(target=kernel[1, 1], args=(flags, data, seen))
    thread.start()
    while not flags[0]:
        pass
    try:
        with pytest.raises(BufferError):
            data.extend(bytes(100_000))
        data[0] = ord("a")
    finally:
        flags[1] = 1
    thread.join()
    assert seen == b"a"
    data.extend(b"afterwards")  # the launch let go of it


def test_nothing_is_leaked(
    add_one: deep_jit.Kernel, find_leaks: Callable[..., list[object]]
) -> None:
    right, wrong, constant = array.array("f", [0]), array.array("d", [0]), bytes(4)

    def exercise() -> None:
        add_one[1, 1](right, right)
        for arguments in ((right, wrong), (constant, right), (right, memoryview(right)[::2], 1)):
            with pytest.raises(deep_jit.LaunchError):
                add_one[1, 1](*arguments)

    assert not find_leaks(exercise, [right, wrong, constant])
    right.append(1)  # nothing exports it any more


def test_no_module_is_imported_for_it(run_python: Callable[..., str], cache_dir: Any) -> None:
    code = """
import array, sys
import deep_jit

jit = deep_jit.Runtime("host", env_prefix="OWN")
out = array.array("i", [0])
jit.compile("seven", "__global__ void seven(int* out) { *out = 7; }")[1, 1](out)
print(out[0], sorted({"ctypes", "numpy"} & set(sys.modules)))
"""
    assert run_python(code) == "7 []\n"
    assert sys.byteorder == "little"
