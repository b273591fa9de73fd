# SPDX-License-Identifier: MIT
"""Objects that speak DLPack as kernel arguments (python/bindings/dlpack.cc)."""

import ctypes
from collections.abc import Callable
from typing import Any

import deep_jit
import numpy as np
import pytest

_CPU = 1
_CUDA = 2


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype = ctypes.c_char_p
_capsule_name.argtypes = (ctypes.py_object,)


class Producer:
    """A library's array whose every field a test may set; float32 of shape (4,) by default."""

    versioned = True

    def __init__(self, **changes: Any) -> None:
        self.memory = (ctypes.c_float * 8)(*range(8))
        self.version = changes.pop("version", (1, 0))
        self.flags = changes.pop("flags", 0)
        self.device = changes.pop("device", _CPU)
        self.has_deleter = changes.pop("has_deleter", True)
        self.poisons = changes.pop("poisons", False)
        self.keywords: list[dict[str, Any]] = []
        self.deleted = 0
        self.capsules: list[Any] = []
        shape = changes.pop("shape", (4,))
        strides = changes.pop("strides", None)
        self.tensor = {
            "data": ctypes.addressof(self.memory),
            "device_type": self.device,
            "ndim": len(shape),
            "code": 2,
            "bits": 32,
            "lanes": 1,
            "shape": (ctypes.c_int64 * len(shape))(*shape),
            "strides": None if strides is None else (ctypes.c_int64 * len(strides))(*strides),
        } | changes

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)

    def __dlpack__(self, **keywords: Any) -> Any:
        self.keywords.append(keywords)
        if keywords and not self.versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.managed = _ManagedVersioned() if self.versioned else _Managed()
        if self.versioned:
            self.managed.major, self.managed.minor = self.version
            self.managed.flags = self.flags
        for name, value in self.tensor.items():
            setattr(self.managed.tensor, name, value)

        def delete(address: int) -> None:
            assert address == ctypes.addressof(self.managed)
            self.deleted += 1
            if self.poisons:
                self.memory[:] = [99] * len(self.memory)

        if self.has_deleter:
            self.managed.deleter = _DELETER(delete)
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        self.capsules.append(_new_capsule(ctypes.addressof(self.managed), name, None))
        return self.capsules[-1]


class OldProducer(Producer):
    versioned = False


class Wrapped:
    """NumPy's own DLPack capsules, without its array interface."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)


@pytest.fixture
def add_one(runtime: deep_jit.Runtime) -> deep_jit.Kernel:
    return runtime.compile(
        "add_one",
        "__global__ void add_one(float* out, const float* x)"
        "{ out[threadIdx.x] = x[threadIdx.x] + 1; }",
    )


def test_capsules_of_numpy(add_one: deep_jit.Kernel) -> None:
    x = np.arange(4, dtype=np.float32)
    out = np.zeros((2, 2), np.float32)
    add_one[1, 4](Wrapped(out), Wrapped(x))
    assert out.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("kind", [Producer, OldProducer])
def test_a_tensor_is_taken_over_and_given_back(add_one: deep_jit.Kernel, kind: Any) -> None:
    out = np.zeros(4, np.float32)
    source = kind()
    launch = add_one[1, 4]
    for times in (1, 2):
        out[:] = 0
        launch(out, source)
        assert out.tolist() == [1, 2, 3, 4]
        assert source.deleted == times
    used = b"used_dltensor_versioned" if kind.versioned else b"used_dltensor"
    assert [_capsule_name(capsule) for capsule in source.capsules] == [used] * 2
    target = kind()
    launch(target, np.zeros(4, np.float32))
    assert list(target.memory) == [1, 1, 1, 1, 4, 5, 6, 7]
    assert target.deleted == 1


@pytest.mark.parametrize("kind", [Producer, OldProducer])
def test_a_tensor_is_held_while_the_kernel_runs(add_one: deep_jit.Kernel, kind: Any) -> None:
    out = np.zeros(4, np.float32)
    source = kind(poisons=True)
    add_one[1, 4](out, source)
    assert out.tolist() == [1, 2, 3, 4]
    assert source.memory[0] == 99


def test_the_versioned_protocol_is_asked_for_first(add_one: deep_jit.Kernel) -> None:
    new, old = Producer(), OldProducer()
    add_one[1, 1](np.zeros(1, np.float32), new)
    add_one[1, 1](np.zeros(1, np.float32), old)
    assert new.keywords == [{"max_version": (1, 1)}]
    assert old.keywords == [{"max_version": (1, 1)}, {}]


@pytest.mark.parametrize("kind", [Producer, OldProducer])
@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"byte_offset": 8}, [3, 4, 5, 6]),
        ({"shape": (2, 2), "strides": (2, 1)}, [1, 2, 3, 4]),
        ({"shape": (1, 4), "strides": (77, 1)}, [1, 2, 3, 4]),
        ({"shape": (4, 1), "strides": (1, 99)}, [1, 2, 3, 4]),
        ({"shape": ()}, [1, 2, 3, 4]),
        ({"has_deleter": False}, [1, 2, 3, 4]),
        ({"version": (1, 99)}, [1, 2, 3, 4]),
    ],
)
def test_layouts(
    add_one: deep_jit.Kernel, kind: Any, changes: dict[str, Any], expected: list[float]
) -> None:
    out = np.zeros(4, np.float32)
    add_one[1, 4](out, kind(**changes))
    assert out.tolist() == expected


def test_empty_tensors_pass(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile(
        "is_null", "__global__ void is_null(int* out, const float* p) { *out = p == nullptr; }"
    )
    out = np.zeros(1, np.int32)
    kernel[1, 1](out, Producer(shape=(0, 3), strides=(9, 9), data=None))
    assert out[0] == 1


@pytest.mark.parametrize("kind", [Producer, OldProducer])
@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"shape": (2, 2), "strides": (1, 2)}, "not C-contiguous"),
        ({"strides": (2,)}, "not C-contiguous"),
        ({"bits": 64}, "is an array of float64"),
        ({"code": 0}, "is an array of int32"),
        ({"code": 1}, "is an array of uint32"),
        ({"code": 6, "bits": 8}, "is an array of bool"),
        ({"code": 5, "bits": 64}, "is an array of complex64"),
        ({"lanes": 2}, "items of 8 bytes"),
        ({"code": 17, "bits": 4}, "items of 4 bits"),
        ({"byte_offset": 2}, "not aligned to 4 bytes"),
        ({"device_type": _CUDA}, "tensor on device type 2"),
    ],
)
def test_tensors_that_would_be_misread_are_refused(
    add_one: deep_jit.Kernel, kind: Any, changes: dict[str, Any], problem: str
) -> None:
    source = kind(**changes)
    with pytest.raises(deep_jit.LaunchError, match=problem) as raised:
        add_one[1, 1](np.zeros(1, np.float32), source)
    assert (raised.value.kernel, raised.value.parameter) == ("add_one", 1)
    assert source.deleted == 1


def test_bfloat16_and_vectors_go_to_what_reads_them(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile(
        "raw", "__global__ void raw(float* out, const void* p) { *out = *(const float*)p; }"
    )
    out = np.full(1, 77, np.float32)
    for changes in ({"code": 4, "bits": 16}, {"lanes": 4}, {"code": 8, "bits": 8}):
        kernel[1, 1](out, Producer(**changes, byte_offset=4))
        assert out[0] == 1


@pytest.mark.parametrize("flags", [1, 2, 3])
def test_read_only_tensors_and_copies_are_not_written(add_one: deep_jit.Kernel, flags: int) -> None:
    out = np.zeros(1, np.float32)
    add_one[1, 1](out, Producer(flags=flags))
    assert out[0] == 1
    target = Producer(flags=flags)
    with pytest.raises(deep_jit.LaunchError, match="read-only"):
        add_one[1, 1](target, out)
    assert target.deleted == 1


def test_read_only_arrays_of_numpy(add_one: deep_jit.Kernel) -> None:
    array = np.arange(1, dtype=np.float32)
    array.flags.writeable = False
    out = np.zeros(1, np.float32)
    add_one[1, 1](out, Wrapped(array))
    assert out[0] == 1
    with pytest.raises(deep_jit.LaunchError, match="read-only"):
        add_one[1, 1](Wrapped(array), out)


def test_other_devices_are_not_asked_for_their_memory(add_one: deep_jit.Kernel) -> None:
    source = Producer(device=_CUDA)
    with pytest.raises(deep_jit.LaunchError, match="lives on DLPack device type 2"):
        add_one[1, 1](np.zeros(1, np.float32), source)
    assert not source.keywords


def test_an_unknown_major_version_is_given_back(add_one: deep_jit.Kernel) -> None:
    source = Producer(version=(2, 0))
    with pytest.raises(deep_jit.LaunchError, match=r"version 2\.0; 1\.x is understood"):
        add_one[1, 1](np.zeros(1, np.float32), source)
    assert source.deleted == 1


def test_used_capsules_and_other_things_are_refused(add_one: deep_jit.Kernel) -> None:
    class Again(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            return self.capsules[0] if self.capsules else super().__dlpack__(**keywords)

    class Nonsense(Producer):
        def __dlpack__(self, **keywords: Any) -> Any:
            return 5

    out = np.zeros(1, np.float32)
    source = Again()
    add_one[1, 1](out, source)
    for broken in (source, Nonsense()):
        with pytest.raises(deep_jit.LaunchError, match="no unused DLPack capsule"):
            add_one[1, 1](out, broken)
    assert source.deleted == 1


def test_a_later_arguments_error_gives_the_tensor_back(add_one: deep_jit.Kernel) -> None:
    class Broken:
        @property
        def __dlpack__(self) -> Any:
            raise ZeroDivisionError("from the property")

    source = Producer()
    with pytest.raises(deep_jit.LaunchError, match="array of float64"):
        add_one[1, 1](source, np.zeros(1))
    assert source.deleted == 1
    with pytest.raises(ZeroDivisionError, match="from the property"):
        add_one[1, 1](source, Broken())
    assert source.deleted == 2


def test_errors_of_the_producer_are_passed_on(add_one: deep_jit.Kernel) -> None:
    class Raising(Producer):
        def __init__(self, error: Exception) -> None:
            super().__init__()
            self.error = error

        def __dlpack__(self, **keywords: Any) -> Any:
            raise self.error

    for error in (BufferError("cannot export"), ValueError("bad"), TypeError("odd")):
        with pytest.raises(type(error), match=str(error)):
            add_one[1, 1](np.zeros(1, np.float32), Raising(error))


def test_tensors_are_no_scalars(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile("echo", "__global__ void echo(int* out, int value) { *out = value; }")
    source = Producer()
    with pytest.raises(deep_jit.LaunchError, match="not an array"):
        kernel[1, 1](np.zeros(1, np.int32), source)
    assert not source.keywords


def test_nothing_is_leaked(
    add_one: deep_jit.Kernel, find_leaks: Callable[..., list[object]]
) -> None:
    array = np.zeros(1, np.float32)
    right, wrong = Wrapped(array), Wrapped(np.zeros(1))

    def exercise() -> None:
        add_one[1, 1](right, right)
        with pytest.raises(deep_jit.LaunchError):
            add_one[1, 1](right, wrong)

    assert not find_leaks(exercise, [array, right, wrong, wrong.array])
