# SPDX-License-Identifier: MIT
"""What Runtime.compile_many takes and raises."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from deep_jit._core import DeepJITError

_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class KernelSource(NamedTuple):
    """One kernel for Runtime.compile_many; a plain tuple of the same does as well."""

    name: str
    """As in Runtime.compile."""
    source: str
    """C++ with exactly one `__global__` function."""
    options: Mapping[str, Any] = _NO_OPTIONS
    """Keyword arguments of Runtime.compile."""


class FailedKernel(NamedTuple):
    """One kernel that Runtime.compile_many could not compile."""

    index: int
    """Its place in the request, counted from 0."""
    name: str
    """Its name there."""
    error: Exception
    """What Runtime.compile would have raised."""


class CompileManyError(DeepJITError):
    """Some kernels of Runtime.compile_many failed. The others are compiled and in the cache.

    The text names each failed kernel with the first line of its error; `__cause__` is the first.

    Attributes:
        errors (list[FailedKernel]): the failures, in the order of the request.
    """

    errors: list[FailedKernel]

    def __init__(self, message: str, errors: Iterable[FailedKernel] = ()) -> None:
        super().__init__(message)
        self.errors = list(errors)


def to_kernel_sources(kernels: Iterable[Any]) -> list[KernelSource]:
    """The request of compile_many, checked as far as Python can."""
    if isinstance(kernels, (str, bytes, KernelSource)):
        raise TypeError("kernels must be a sequence of KernelSource or tuples, not one of them")
    sources = []
    for index, item in enumerate(kernels):
        if not isinstance(item, (tuple, list)) or not 2 <= len(item) <= 3:
            raise TypeError(
                f"kernels[{index}] must be (name, source) or (name, source, options), not {item!r}"
            )
        source = KernelSource(*item)
        if not isinstance(source.options, Mapping):
            raise TypeError(
                f"options of kernels[{index}] must be a mapping, not {source.options!r}"
            )
        sources.append(source)
    return sources


def make_error(failures: list[FailedKernel], count: int) -> CompileManyError:
    """The error for these failures among `count` kernels."""
    lines = [f"{len(failures)} of {count} kernels could not be compiled:"]
    for index, name, error in failures:
        first_line = str(error).partition("\n")[0]
        lines.append(f"  kernels[{index}] `{name}`: {type(error).__name__}: {first_line}")
    result = CompileManyError("\n".join(lines), failures)
    result.__cause__ = failures[0].error
    return result
