# SPDX-License-Identifier: MIT
"""Types of the compiled part of deep_jit (python/bindings). Users import them from deep_jit."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias, final

_Dim: TypeAlias = int | tuple[int, ...] | list[int]

class DeepJITError(RuntimeError):
    """Base of all errors of this package; itself for wrong use and an unusable environment."""

class CompileError(DeepJITError):
    """The compiler refused the source, or produced nothing usable."""

    log: str
    """Everything that the compiler wrote, undecodable bytes replaced."""
    command: list[str]
    """Its argument vector."""
    options: dict[str, Any]
    """The merged compiler options."""
    source_path: str
    """The file that was compiled."""
    source: str
    """The kernel's source as it was given."""

class CacheError(DeepJITError):
    """The disk cache cannot be written. A damaged entry raises nothing: it is rebuilt."""

class LaunchError(DeepJITError):
    """A kernel cannot be launched as asked, or threw while it ran."""

    kernel: str
    """Name of the kernel."""
    parameter: int | None
    """The parameter it is about, counted from 0."""

class Param(NamedTuple):
    """One parameter of a kernel."""

    kind: str
    """'pointer', 'bool', 'signed', 'unsigned', 'float' or 'struct'."""
    size: int
    """Bytes."""
    alignment: int
    """Bytes."""
    element_kind: str | None
    """What a pointer points to ('unknown': void or incomplete); None when it is no pointer."""
    element_size: int | None
    """Bytes; 0 when unknown; None when it is no pointer."""
    element_is_const: bool | None
    """Whether the kernel only reads through the pointer; None when it is no pointer."""

class CacheInfo(NamedTuple):
    """What happened in one runtime's disk cache, in this process.

    It compiled published + publish_races + healed + kept_private kernels.
    """

    hits: int
    """Look-ups on disk that found a whole, checked entry."""
    misses: int
    """Look-ups that found none; a compile looks twice, before and after it has the key's lock."""
    damaged: int
    """Entries found with a bad manifest, file size or checksum."""
    other_version: int
    """Entries found that another format version wrote."""
    unreadable: int
    """Cache roots or entries that could not be read."""
    published: int
    """Builds renamed to where nothing was."""
    publish_races: int
    """Builds dropped for one that another writer published first."""
    healed: int
    """Unusable entries that a build replaced."""
    kept_private: int
    """Builds that could not be published, used from the temporary directory."""

@final
class BoundLaunch:
    """A kernel with a grid and a block: `kernel[grid, block].__self__`."""

    def __new__(cls) -> NoReturn: ...
    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks per dimension."""

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads per block and dimension."""

    def launch(
        self, *args: Any, num_smem_bytes: int | None = None, num_threads: int | None = None
    ) -> None:
        """Runs the kernel with these arguments and waits until it is done."""

@final
class Kernel:
    """A compiled and loaded kernel; see its run-time documentation for the kinds of arguments."""

    def __new__(cls) -> NoReturn: ...
    @property
    def name(self) -> str:
        """Name of the kernel function in the source."""

    @property
    def params(self) -> tuple[Param, ...]:
        """Its parameters in order."""

    def __getitem__(self, grid_and_block: tuple[_Dim, _Dim], /) -> Callable[..., None]:
        """A function that launches with this grid and block: `kernel[grid, block](out, x, n)`."""

    def launch(
        self,
        *,
        grid: _Dim,
        block: _Dim,
        args: tuple[Any, ...] | list[Any] = ...,
        num_smem_bytes: int | None = None,
        num_threads: int | None = None,
    ) -> None:
        """Runs the kernel and waits until it is done; the GIL is released meanwhile."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

class CudaParam(NamedTuple):
    """One parameter of a CUDA kernel."""

    kind: str
    """'pointer', 'bool', 'signed', 'unsigned', 'float', 'struct', or 'sized': no more is known."""
    size: int
    """Bytes."""
    offset: int
    """Bytes, in the kernel's parameter memory."""

class KernelAttributes(NamedTuple):
    """What the driver says of a loaded CUDA kernel."""

    num_regs: int
    """Registers per thread."""
    shared_size_bytes: int
    """Static shared memory per block."""
    local_size_bytes: int
    """Local memory per thread: spilled registers, arrays."""
    const_size_bytes: int
    """Constant memory."""
    max_threads_per_block: int
    """The largest block that can be launched on this device."""

@final
class CudaBoundLaunch:
    """A CUDA kernel with a grid and a block: `kernel[grid, block].__self__`."""

    def __new__(cls) -> NoReturn: ...
    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks per dimension."""

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads per block and dimension."""

    def launch(
        self,
        *args: Any,
        stream: Any = None,
        num_smem_bytes: int | None = None,
        cluster_dim: _Dim | None = None,
        cooperative: bool | None = None,
        enable_pdl: bool | None = None,
        nonportable_cluster_size_allowed: bool | None = None,
    ) -> None:
        """Launches the kernel with these arguments and returns at once."""

@final
class CudaKernel:
    """A compiled and loaded CUDA kernel; see its run-time documentation for the arguments."""

    def __new__(cls) -> NoReturn: ...
    @property
    def name(self) -> str:
        """Name of the kernel function, without its parameters."""

    @property
    def params(self) -> tuple[CudaParam, ...]:
        """Its parameters in order."""

    @property
    def attributes(self) -> KernelAttributes:
        """Registers, memory and largest block, asked of the driver."""

    def __getitem__(self, grid_and_block: tuple[_Dim, _Dim], /) -> Callable[..., None]:
        """A function that launches with this grid and block: `kernel[grid, block](out, x, n)`."""

    def launch(
        self,
        *,
        grid: _Dim,
        block: _Dim,
        args: tuple[Any, ...] | list[Any] = ...,
        stream: Any = None,
        num_smem_bytes: int | None = None,
        cluster_dim: _Dim | None = None,
        cooperative: bool | None = None,
        enable_pdl: bool | None = None,
        nonportable_cluster_size_allowed: bool | None = None,
    ) -> None:
        """Launches the kernel and returns at once."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class HostRuntime:
    """The host backend's runtime; use deep_jit.Runtime."""

    def __new__(
        cls,
        library_root: str,
        env_prefix: str,
        extra_signature: str,
        include_dirs: Sequence[str],
        include_prefixes: Sequence[str],
        python_executable: str,
        cache_dirs: Sequence[str],
        dependency_mode: str,
        toolkit_root: str,
        /,
    ) -> HostRuntime: ...
    def compile(self, name: str, source: str, options: dict[str, Any], /) -> Kernel: ...
    def compile_many(
        self, requests: Sequence[tuple[str, str, dict[str, Any]]], jobs: int, /
    ) -> list[Kernel | Exception]: ...
    def compile_without_load(self, name: str, source: str, options: dict[str, Any], /) -> str: ...
    def cache_key(self, source: str, options: dict[str, Any], /) -> str: ...
    def explain_key(self, source: str, options: dict[str, Any], /) -> str: ...
    def cache_info(self) -> CacheInfo: ...

@final
class CudaRuntime:
    """The CUDA backend's runtime; use deep_jit.Runtime."""

    def __new__(
        cls,
        library_root: str,
        env_prefix: str,
        extra_signature: str,
        include_dirs: Sequence[str],
        include_prefixes: Sequence[str],
        python_executable: str,
        cache_dirs: Sequence[str],
        dependency_mode: str,
        toolkit_root: str,
        /,
    ) -> CudaRuntime: ...
    def compile(self, name: str, source: str, options: dict[str, Any], /) -> CudaKernel: ...
    def compile_many(
        self, requests: Sequence[tuple[str, str, dict[str, Any]]], jobs: int, /
    ) -> list[CudaKernel | Exception]: ...
    def compile_without_load(self, name: str, source: str, options: dict[str, Any], /) -> str: ...
    def cache_key(self, source: str, options: dict[str, Any], /) -> str: ...
    def explain_key(self, source: str, options: dict[str, Any], /) -> str: ...
    def cache_info(self) -> CacheInfo: ...
