# SPDX-License-Identifier: MIT
"""What CUDA kernels take (python/bindings/{arguments,cuda_signature,cuda_arrays,dlpack}.cc)."""

import array
import ctypes
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

import deep_jit
import numpy as np
import pytest

Load = Callable[..., deep_jit.CudaKernel]

# Symbol, size, argument, struct format and value that arrive.
_TYPED: list[tuple[str, int, Any, str, Any]] = [
    ("_Z1kb", 1, True, "?", True),
    ("_Z1kb", 1, 0, "?", False),
    ("_Z1ka", 1, -128, "b", -128),
    ("_Z1kh", 1, 255, "B", 255),
    ("_Z1ks", 2, -3, "h", -3),
    ("_Z1ki", 4, -(2**31), "i", -(2**31)),
    ("_Z1ki", 4, np.int64(7), "i", 7),
    ("_Z1kj", 4, 2**32 - 1, "I", 2**32 - 1),
    ("_Z1kl", 8, -1, "q", -1),
    ("_Z1km", 8, 2**64 - 1, "Q", 2**64 - 1),
    ("_Z1kx", 8, 5, "q", 5),
    ("_Z1kf", 4, 1.5, "f", 1.5),
    ("_Z1kf", 4, 3, "f", 3.0),
    ("_Z1kf", 4, np.float64(0.5), "f", 0.5),
    ("_Z1kd", 8, 0.1, "d", 0.1),
    ("_Z1kd", 8, 2, "d", 2.0),
    ("_Z1kPf", 8, None, "Q", 0),
    ("_Z1kPKf", 8, 0x7F0000001000, "Q", 0x7F0000001000),
    ("_ZN3lib1kIfEEvPT_i", 8, 16, "Q", 16),
]


@pytest.mark.parametrize("symbol, size, argument, form, expected", _TYPED)
def test_each_type_of_a_cpp_kernel(
    *, load: Load, driver: Any, symbol: str, size: int, argument: Any, form: str, expected: Any
) -> None:
    if symbol.endswith("T_i"):  # a template: "void lib::k<float>(float*, int)"
        kernel = load(symbol, size, 4)
        assert [param.kind for param in kernel.params] == ["pointer", "signed"]
        assert kernel.name == "lib::k<float>"
        kernel[1, 1](argument, -5)
        assert driver.take_arguments() == [struct.pack(form, expected), struct.pack("i", -5)]
        return
    kernel = load(symbol, size)
    kernel[1, 1](argument)
    assert driver.take_arguments() == [struct.pack(form, expected)]


@pytest.mark.parametrize(
    "symbol, size, argument, problem",
    [
        ("_Z1ki", 4, 2**31, r"\(int32\) is out of range: 2147483648 does not fit; expected -2147"),
        ("_Z1kj", 4, -1, r"\(uint32\) is out of range"),
        ("_Z1ki", 4, 1.0, "must be an int, not a float"),
        ("_Z1ki", 4, None, "must be an int, not NoneType"),
        ("_Z1kf", 4, 1e39, r"\(float32\) is out of range"),
        ("_Z1kf", 4, "1", "must be a float, not str"),
        ("_Z1kb", 1, 2, "expected True, False, 0 or 1"),
        ("_Z1kPf", 8, -1, r"\(float32\*\) is out of range"),
        ("_Z1kPf", 8, 1.0, "must be a CUDA array of torch, CuPy .* or None, not float"),
        ("_Z1kPf", 8, np.zeros(2, np.float32), "is on the CPU; a kernel of the cuda backend needs"),
        ("_Z1kPf", 8, array.array("f", [1]), "must be a CUDA array"),
        ("_Z1kPf", 8, b"12345678", "must be a CUDA array"),
    ],
)
def test_what_a_cpp_kernel_refuses(
    *, load: Load, driver: Any, symbol: str, size: int, argument: Any, problem: str
) -> None:
    kernel = load(symbol, size)
    with pytest.raises(deep_jit.LaunchError, match=problem) as raised:
        kernel[1, 1](argument)
    assert (raised.value.kernel, raised.value.parameter) == ("k", 0)
    assert driver.take_launches() == []


class _Index:
    def __index__(self) -> int:
        return 9


_SIZED: list[tuple[int, Any, bytes]] = [
    (1, -128, b"\x80"),
    (1, 255, b"\xff"),
    (1, True, b"\x01"),
    (2, 2**16 - 1, b"\xff\xff"),
    (4, -1, b"\xff" * 4),
    (4, 2**32 - 1, b"\xff" * 4),
    (4, 1.5, struct.pack("f", 1.5)),
    (4, float("inf"), struct.pack("f", float("inf"))),
    (8, 0.1, struct.pack("d", 0.1)),
    (8, 2**64 - 1, b"\xff" * 8),
    (8, -(2**63), struct.pack("q", -(2**63))),
    (8, None, bytes(8)),
    (8, _Index(), struct.pack("q", 9)),
    (2, np.float16(1.5), struct.pack("e", 1.5)),
    (4, np.float32(1.5), struct.pack("f", 1.5)),
    (4, np.float64(1.5), struct.pack("f", 1.5)),
    (4, np.int64(-7), struct.pack("i", -7)),
    (8, np.int64(-7), struct.pack("q", -7)),
    (1, np.bool_(True), b"\x01"),
    (2, b"\x12\x34", b"\x12\x34"),
    (8, bytearray(b"12345678"), b"12345678"),
    (4, ctypes.c_float(2.5), struct.pack("f", 2.5)),
]


@pytest.mark.parametrize("size, argument, expected", _SIZED)
def test_only_the_size_is_known(
    load: Load, driver: Any, size: int, argument: Any, expected: bytes
) -> None:
    # extern "C" has no types; of a class only the name is known.
    for symbol in ("k", "_Z1k4Mine"):
        kernel = load(symbol, size)
        assert [tuple(param) for param in kernel.params] == [("sized", size, 0)]
        kernel[1, 1](argument)
        assert driver.take_arguments() == [expected]


@pytest.mark.parametrize(
    "size, argument, problem",
    [
        (1, 256, r"\(1 bytes\) is out of range: 256 does not fit; expected -2\*\*7 .. 2\*\*8 - 1"),
        (4, -(2**31) - 1, r"expected -2\*\*31 .. 2\*\*32 - 1"),
        (8, 2**64, r"expected -2\*\*63 .. 2\*\*64 - 1"),
        (8, 10**30, "is out of range"),
        (8, -(10**30), "is out of range"),
        (2, 1.5, "must not be a float .*which kind of float the kernel reads is not known"),
        (4, 1e39, "at most 3.4e38 in magnitude"),
        (4, None, "must be an int, a float or bytes of length 4, not NoneType"),
        (4, "text", "must be an int, a float or bytes of length 4, not str"),
        (8, "text", "must be an int, a float, a CUDA array, None or bytes of length 8, not str"),
        (4, b"123", "must be bytes of length 4, not of length 3"),
        (4, np.zeros(1, np.int32), "must be a number, not an array"),
        (8, np.zeros(1, np.int64), "is on the CPU"),
        (4, np.complex64(1), "must be a number"),
    ],
)
def test_what_does_not_fit_a_size(
    load: Load, driver: Any, size: int, argument: Any, problem: str
) -> None:
    kernel = load("k", size)
    with pytest.raises(deep_jit.LaunchError, match=problem) as raised:
        kernel[1, 1](argument)
    assert raised.value.parameter == 0
    assert driver.take_launches() == []


class _Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_double), ("b", ctypes.c_float * 2))


def test_structs_and_tensor_maps(load: Load, driver: Any) -> None:
    kernel = load("_Z1k4PairRK11CUtensorMap", 16, 128)
    assert [param.kind for param in kernel.params] == ["struct", "struct"]
    pair = _Pair(1.5, (2, 3))
    tensor_map = bytes(range(128))
    expected = [struct.pack("dff", 1.5, 2, 3), tensor_map]
    for first in (pair, bytes(pair), bytearray(pair), np.frombuffer(bytes(pair), np.uint8)):
        for second in (tensor_map, memoryview(tensor_map)):
            kernel[1, 1](first, second)
            assert driver.take_arguments() == expected
    with pytest.raises(deep_jit.LaunchError, match="must be bytes of length 128, not of length 1"):
        kernel[1, 1](pair, b"1")
    with pytest.raises(deep_jit.LaunchError, match="must be bytes of length 16, not int"):
        kernel[1, 1](1, tensor_map)


def test_many_arguments_and_wrong_counts(load: Load, driver: Any) -> None:
    kernel = load("k", *[4] * 40)
    kernel[1, 1](*range(40))
    assert driver.take_arguments() == [struct.pack("i", i) for i in range(40)]
    with pytest.raises(deep_jit.LaunchError, match="has 40 parameters, but 1 arguments were given"):
        kernel[1, 1](1)
    load("k")[1, 1]()
    assert driver.take_arguments() == []


# --- Arrays ---

_GPU, _PINNED, _MANAGED, _CPU, _ROCM = 2, 3, 13, 1, 10


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


_SHAPE = (ctypes.c_int64 * 1)(4)


def _fill(tensor: _Tensor, owner: Any) -> None:
    tensor.data, tensor.byte_offset = owner.address - 64, 64
    tensor.device_type, tensor.device_id = owner.device, 0
    tensor.ndim, tensor.shape = 1, _SHAPE
    tensor.strides = (ctypes.c_int64 * 1)(2)
    tensor.code, tensor.bits, tensor.lanes = owner.dtype


_VIEW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Tensor))


class _ExchangeApi(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("unused", ctypes.c_void_p * 3),
        ("view", _VIEW),
        ("stream", ctypes.c_void_p),
    )


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Base:
    """An array of some library: strided, 4 items, at a made-up address."""

    address = 0x7F1000000100

    def __init__(self, device: int = _GPU, dtype: tuple[int, int, int] = (2, 32, 1)) -> None:
        self.device = device
        self.dtype = dtype


def _view(owner: Any, tensor: Any) -> int:
    _fill(tensor.contents, owner)
    return 0


_API = _ExchangeApi(major=1, minor=3, view=_VIEW(_view))
_FUTURE = _ExchangeApi(major=2, minor=0, previous=ctypes.addressof(_API))


class Exchanged(Base):
    """Has DLPack's C interface, as torch's tensors have, and nothing else."""

    __dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_API), b"dlpack_exchange_api", None)


class ExchangedLater(Base):
    """Its newest version is not understood, an older one is."""

    __dlpack_c_exchange_api__ = _new_capsule(
        ctypes.addressof(_FUTURE), b"dlpack_exchange_api", None
    )


class Interfaced(Base):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        kind = "iuf"[self.dtype[0]]
        return {
            "shape": (4,),
            "strides": (8,),
            "typestr": f"<{kind}{self.dtype[1] // 8}",
            "data": (self.address, False),
            "version": 3,
        }


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Packed(Base):
    """Has DLPack as Python methods."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)

    def __dlpack__(self, *, stream: Any, max_version: Any = None) -> Any:
        assert stream == -1
        self.managed = _Managed()
        _fill(self.managed.tensor, self)
        return _new_capsule(ctypes.addressof(self.managed), b"dltensor", None)


class CupyLike:
    """CuPy's array, as far as it is asked for."""

    def __init__(self, device: int = _GPU, dtype: tuple[int, int, int] = (2, 32, 1)) -> None:
        self.data = types.SimpleNamespace(ptr=Base.address)
        self.dtype = types.SimpleNamespace(str=f"<{'iuf'[dtype[0]]}4")


@pytest.fixture
def cupy_like(monkeypatch: pytest.MonkeyPatch) -> type:
    module = types.ModuleType("cupy")
    module.ndarray = CupyLike  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    return CupyLike


@pytest.mark.parametrize("symbol", ["_Z1kPf", "_Z1kPv", "_Z1kPKf", "k", "_Z1k7Pointer"])
def test_arrays_of_each_kind(load: Load, driver: Any, cupy_like: type, symbol: str) -> None:
    kernel = load(symbol, 8)
    for kind in (Exchanged, ExchangedLater, Interfaced, Packed, cupy_like):
        for device in (_GPU, _PINNED, _MANAGED):
            kernel[1, 1](kind(device))
            assert driver.take_arguments() == [struct.pack("Q", Base.address)], kind


def test_arrays_of_another_type_or_place(load: Load, driver: Any, cupy_like: type) -> None:
    typed, sized = load("_Z1kPf", 8), load("k", 8)
    for kind in (Exchanged, Interfaced, Packed, cupy_like):
        with pytest.raises(deep_jit.LaunchError, match="is an array of int32, which the kernel"):
            typed[1, 1](kind(dtype=(0, 32, 1)))
    for kernel in (typed, sized):
        with pytest.raises(deep_jit.LaunchError, match="is on the CPU"):
            kernel[1, 1](Exchanged(_CPU))
        for kind in (Exchanged, Packed):
            with pytest.raises(deep_jit.LaunchError, match="lives on DLPack device type 10"):
                kernel[1, 1](kind(_ROCM))
    assert driver.take_launches() == []


def test_an_exchange_that_raises(load: Load, driver: Any) -> None:
    def fail(owner: Any, tensor: Any) -> int:
        return -1

    api = _ExchangeApi(major=1, minor=3, view=_VIEW(fail))

    class Failing(Base):
        __dlpack_c_exchange_api__ = _new_capsule(
            ctypes.addressof(api), b"dlpack_exchange_api", None
        )

    with pytest.raises(BufferError, match="failed without an error"):
        load("k", 8)[1, 1](Failing())
    assert driver.take_launches() == []


def test_no_reference_is_lost_or_kept(
    load: Load, driver: Any, find_leaks: Callable[..., list[object]], cupy_like: type
) -> None:
    kernel = load("_Z1kPfi", 8, 4)
    sized = load("k", 8)
    arrays = [Exchanged(), ExchangedLater(), Interfaced(), Packed(), cupy_like()]
    numbers = [10**6, 2.5, b"12345678", np.float32(1.5)]

    def exercise() -> None:
        for item in arrays:
            kernel[1, 1](item, numbers[0])
            sized[2, 1](item)
        for number in numbers[:3]:
            sized[1, 3](number)
        refused = 0
        for arguments in ((arrays[0], arrays[0]), (numbers[1], 1), (arrays[0],)):
            try:
                kernel[1, 1](*arguments)
            except deep_jit.LaunchError:
                refused += 1
        assert refused == 3

    types_ = [type(item) for item in arrays]
    assert not find_leaks(exercise, [*arrays, *numbers, *types_, kernel, sized])


def test_types_that_come_and_go(load: Load, driver: Any) -> None:
    """More types than are remembered, each met twice."""
    kernel = load("k", 8)
    kinds = [type(f"Kind{i}", (Exchanged,), {"address": 0x1000 * (i + 1)}) for i in range(9)]
    for kind in kinds * 2:
        kernel[1, 1](kind())
        assert driver.take_arguments() == [struct.pack("Q", kind.address)]
