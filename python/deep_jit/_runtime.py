# SPDX-License-Identifier: MIT
"""deep_jit.Runtime: what one library tells DeepJIT about itself, and the way to its kernels."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from deep_jit._compile_many import FailedKernel, KernelSource, make_error, to_kernel_sources
from deep_jit._core import CacheInfo, CudaKernel, CudaRuntime, HostRuntime, Kernel
from deep_jit._options import CompileOptions

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack

StrPath = str | os.PathLike[str]

_BACKENDS = {"host": HostRuntime, "cuda": CudaRuntime}

_KernelT = TypeVar("_KernelT", Kernel, CudaKernel)


class Runtime(Generic[_KernelT]):
    """Compiles kernels for one backend, and keeps them in memory and on disk.

    Declaring one touches nothing; the environment is read and the compiler is found at first use.
    One runtime serves all threads of a process: the same source and options are compiled once, by
    one thread, while the others wait without the GIL. After `os.fork` a child may use a runtime
    that its parent declared or used.

    Environment (`<env_prefix>_NAME`, else `DJ_NAME`), read at first use:
        JIT_CACHE_DIR: cache folders separated by ":", the first is written to; default `~/.dj`.
        JIT_CPP_STANDARD: the N of `-std=c++N`; default 20.
        JIT_PRINT_COMPILER_COMMAND, JIT_PRINT_LOAD_TIME: 1 prints them to standard output.
        JIT_DEBUG: 1 prints both, compiles with debug information and keeps assembly.
        Of "host" alone:
        JIT_CXX_COMPILER: the C++ compiler, with arguments if need be; default: `CXX`, then clang++,
            g++ and c++ on PATH, then the `ziglang` wheel of this interpreter.
        JIT_NUM_THREADS: threads that run blocks at once; default: as many as the machine runs.
        Of "cuda" alone:
        JIT_NVCC_COMPILER: nvcc; default: that of CUDA_HOME, CUDA_PATH, PATH, the
            `nvidia-cuda-nvcc` wheel of this interpreter, or /usr/local/cuda.
        and more: docs/reference/environment.md lists all.

    Args:
        backend: "host", which runs kernels on the CPU, or "cuda". The NVIDIA driver is opened, and
            a CUDA context made, by the first use that needs them.
        env_prefix: prefix of the environment variables above; not empty and not "DJ".
        include_dirs: absolute folders for `#include`, in order.
        include_prefixes: `#include <PREFIX...>` is tracked: those headers are found in
            `include_dirs`, and a changed one makes a new key. Other headers are not looked at.
        extra_signature: text that goes into every key, for what DeepJIT cannot see.
        library_root: absolute folder of the library, noted in `meta.json`; default: this package's.
        cache_dirs: absolute cache folders instead of those of JIT_CACHE_DIR; the first is written
            to. None given: the environment decides.
        dependency_mode: how changes of headers are noticed. "tracked": as `include_prefixes` says.
            "verified": the compiler's own list of all headers that it read is kept with the kernel,
            and a change of any, also of a quoted or a system header, is a miss on disk. It costs a
            preprocessor run for each compilation, and a look at each header for a kernel on disk.

        toolkit_root: absolute folder of the CUDA toolkit to use, before all that the environment
            says; default: the environment decides.

    Raises:
        ValueError: no such backend or dependency mode.
        DeepJITError: an empty or reserved prefix, an empty or relative folder.
    """

    __slots__ = ("_backend", "_core", "_env_prefix")

    if TYPE_CHECKING:  # which kernels a backend gives

        @overload
        def __new__(
            cls, backend: Literal["host"] = "host", **settings: Any
        ) -> "Runtime[Kernel]": ...
        @overload
        def __new__(cls, backend: Literal["cuda"], **settings: Any) -> "Runtime[CudaKernel]": ...

    def __init__(
        self,
        backend: str = "host",
        *,
        env_prefix: str,
        include_dirs: Sequence[StrPath] = (),
        include_prefixes: Sequence[str] = (),
        extra_signature: str = "",
        library_root: StrPath | None = None,
        cache_dirs: Sequence[StrPath] = (),
        dependency_mode: str = "tracked",
        toolkit_root: StrPath | None = None,
    ) -> None:
        if backend not in _BACKENDS:
            raise ValueError(f"no backend {backend!r}; there is: {', '.join(sorted(_BACKENDS))}")
        root = (
            os.path.dirname(os.path.abspath(__file__))
            if library_root is None
            else os.fspath(library_root)
        )
        self._backend = backend
        self._env_prefix = env_prefix
        self._core = _BACKENDS[backend](
            root,
            env_prefix,
            extra_signature,
            _paths(include_dirs, "include_dirs"),
            include_prefixes,
            sys.executable or "",
            _paths(cache_dirs, "cache_dirs"),
            dependency_mode,
            "" if toolkit_root is None else os.fspath(toolkit_root),
        )

    def __repr__(self) -> str:
        return f"<deep_jit.Runtime {self._backend!r} with env_prefix {self._env_prefix!r}>"

    @property
    def backend(self) -> str:
        """Name of the backend, as given to the constructor."""
        return self._backend

    def compile(self, name: str, source: str, **options: "Unpack[CompileOptions]") -> _KernelT:
        """Returns the loaded kernel of `source`, compiled now unless memory or disk has it.

        Args:
            name: tag for people, `[A-Za-z0-9_]+`, in the name of the entry's folder; not part of
                the key.
            source: C++ or CUDA C++ with exactly one `__global__` function.
            **options: see deep_jit.HostOptions and deep_jit.CudaOptions.

        Raises:
            CompileError: the compiler (or the post hook) failed; its log and command are
                attributes. Nothing is kept, and the next call tries again.
            CacheError: the cache folder cannot be written.
            DeepJITError: no compiler, a bad name, a tracked header that is missing, not exactly one
                kernel.
            KeyboardInterrupt: Ctrl-C; the compiler is gone and nothing is left behind.
        """
        return self._core.compile(name, source, options)

    def compile_many(
        self,
        kernels: Iterable[KernelSource | tuple[str, str] | tuple[str, str, Mapping[str, Any]]],
        *,
        jobs: int | None = None,
    ) -> list[_KernelT]:
        """Compiles and loads several kernels side by side; returns them in the order given.

            jit.compile_many([("scale", scale), KernelSource("add", add, {"optimize_level": 2})])

        Args:
            kernels: tuples (name, source) or (name, source, options), options being keyword
                arguments of `compile`.
            jobs: compilers that run at once; default: as many as this process may use cores.

        Raises:
            CompileManyError: at least one failed, as `compile` would have; raised when all others
                are done.
            TypeError: wrong arguments; nothing was compiled.
            KeyboardInterrupt: Ctrl-C; all compilers are gone and nothing is left behind.
        """
        if jobs is None:
            jobs = len(os.sched_getaffinity(0))
        if not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1:
            raise TypeError(f"jobs must be an int of at least 1, or None, not {jobs!r}")
        sources = to_kernel_sources(kernels)
        requests = [(source.name, source.source, dict(source.options)) for source in sources]
        if not requests:
            return []
        results = self._core.compile_many(requests, min(jobs, len(requests)))
        failures = [
            FailedKernel(index, source.name, result)
            for index, (source, result) in enumerate(zip(sources, results, strict=True))
            if isinstance(result, Exception)
        ]
        if failures:
            raise make_error(failures, len(sources))
        return [result for result in results if not isinstance(result, Exception)]

    def compile_without_load(
        self, name: str, source: str, **options: "Unpack[CompileOptions]"
    ) -> Path:
        """Compiles unless the disk has it, and returns the entry's folder. Loads nothing.

        For building caches ahead of time, also after a fork and where the kernel could not run.
        Arguments and errors are those of `compile`.
        """
        return Path(self._core.compile_without_load(name, source, options))

    def cache_key(self, source: str, **options: "Unpack[CompileOptions]") -> str:
        """The key that `compile` would use: 32 hexadecimal digits. Compiles nothing."""
        return self._core.cache_key(source, options)

    def explain_key(self, source: str, **options: "Unpack[CompileOptions]") -> str:
        """What the key is made of, one part per line.

        The lines in which two of them differ tell why a kernel was compiled again.
        """
        return self._core.explain_key(source, options)

    def cache_info(self) -> CacheInfo:
        """Counters of this runtime's disk cache in this process; all zero before its first use.

        A kernel that memory had is not counted: it asks the disk nothing.
        """
        return self._core.cache_info()


def _paths(paths: Sequence[StrPath], what: str) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        raise TypeError(f"{what} must be a sequence of paths, not one path: {paths!r}")
    return [os.fspath(path) for path in paths]
