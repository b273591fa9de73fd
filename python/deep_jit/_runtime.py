# SPDX-License-Identifier: MIT
"""deep_jit.Runtime: what one library tells DeepJIT about itself, and the way to its kernels."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deep_jit._compile_many import FailedKernel, KernelSource, make_error, to_kernel_sources
from deep_jit._core import CacheInfo, HostRuntime, Kernel

StrPath = str | os.PathLike[str]

_BACKENDS = {"host": HostRuntime}


class Runtime:
    """Compiles kernels for one backend, and keeps them in memory and on disk.

    Declaring one touches nothing; the environment is read and the compiler is found at first use.
    One runtime serves all threads of a process: the same source and options are compiled once, by
    one thread, while the others wait without the GIL. After `os.fork` a child may use a runtime
    that its parent declared or used.

    Environment (`<env_prefix>_NAME`, else `DJ_NAME`), read at first use:
        JIT_CACHE_DIR: cache folders separated by ":", the first is written to; default `~/.dj`.
        JIT_CXX_COMPILER: the C++ compiler, with arguments if need be; default: `CXX`, then clang++,
            g++ and c++ on PATH, then the `ziglang` wheel of this interpreter.
        JIT_CPP_STANDARD: the N of `-std=c++N`; default 20.
        JIT_NUM_THREADS: threads that run blocks at once; default: as many as the machine runs.
        JIT_PRINT_COMPILER_COMMAND, JIT_PRINT_LOAD_TIME: 1 prints them to standard output.
        JIT_DEBUG: 1 prints both, and compiles with `-g`.

    Args:
        backend: "host", which runs kernels on the CPU.
        env_prefix: prefix of the environment variables above; not empty and not "DJ".
        include_dirs: absolute folders for `#include`, in order.
        include_prefixes: `#include <PREFIX...>` is tracked: those headers are found in
            `include_dirs`, and a changed one makes a new key. Other headers are not looked at.
        extra_signature: text that goes into every key, for what DeepJIT cannot see.
        library_root: absolute folder of the library, noted in `meta.json`; default: this package's.
        cache_dirs: absolute cache folders instead of those of JIT_CACHE_DIR; the first is written
            to. None given: the environment decides.

    Raises:
        ValueError: no such backend.
        DeepJITError: an empty or reserved prefix, an empty or relative folder.
    """

    __slots__ = ("_backend", "_core", "_env_prefix")

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
        )

    def __repr__(self) -> str:
        return f"<deep_jit.Runtime {self._backend!r} with env_prefix {self._env_prefix!r}>"

    @property
    def backend(self) -> str:
        """Name of the backend, as given to the constructor."""
        return self._backend

    def compile(
        self,
        name: str,
        source: str,
        *,
        optimize_level: str | int | None = None,
        debug_info: bool | None = None,
        cxx_flags: Sequence[str] | None = None,
        extra_cxx_flags: Sequence[str] = (),
    ) -> Kernel:
        """Returns the loaded kernel of `source`, compiled now unless memory or disk has it.

        Args:
            name: tag for people, `[A-Za-z0-9_]+`, in the name of the entry's folder; not part of
                the key.
            source: C++ with exactly one `__global__` function.
            optimize_level: what follows `-O`: 0 to 3, "s", "fast"; default 3.
            debug_info: whether to add `-g`; default: only under JIT_DEBUG.
            cxx_flags: replaces the default flags (`-std=c++20`, `-fPIC`, ...).
            extra_cxx_flags: come after all other flags.

        Raises:
            CompileError: the compiler failed; its log and command are attributes. Nothing is kept,
                and the next call tries again.
            CacheError: the cache folder cannot be written.
            DeepJITError: no compiler, a bad name, a tracked header that is missing, not exactly one
                kernel.
            KeyboardInterrupt: Ctrl-C; the compiler is gone and nothing is left behind.
        """
        return self._core.compile(
            name, source, _level(optimize_level), debug_info, cxx_flags, extra_cxx_flags
        )

    def compile_many(
        self,
        kernels: Iterable[KernelSource | tuple[str, str] | tuple[str, str, Mapping[str, Any]]],
        *,
        jobs: int | None = None,
    ) -> list[Kernel]:
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
        requests = [
            (source.name, source.source, *_checked_options(index, source.options))
            for index, source in enumerate(sources)
        ]
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
        return [result for result in results if isinstance(result, Kernel)]

    def compile_without_load(
        self,
        name: str,
        source: str,
        *,
        optimize_level: str | int | None = None,
        debug_info: bool | None = None,
        cxx_flags: Sequence[str] | None = None,
        extra_cxx_flags: Sequence[str] = (),
    ) -> Path:
        """Compiles unless the disk has it, and returns the entry's folder. Loads nothing.

        For building caches ahead of time, also after a fork and where the kernel could not run.
        Arguments and errors are those of `compile`.
        """
        return Path(
            self._core.compile_without_load(
                name, source, _level(optimize_level), debug_info, cxx_flags, extra_cxx_flags
            )
        )

    def cache_key(
        self,
        source: str,
        *,
        optimize_level: str | int | None = None,
        debug_info: bool | None = None,
        cxx_flags: Sequence[str] | None = None,
        extra_cxx_flags: Sequence[str] = (),
    ) -> str:
        """The key that `compile` would use: 32 hexadecimal digits. Compiles nothing."""
        return self._core.cache_key(
            source, _level(optimize_level), debug_info, cxx_flags, extra_cxx_flags
        )

    def explain_key(
        self,
        source: str,
        *,
        optimize_level: str | int | None = None,
        debug_info: bool | None = None,
        cxx_flags: Sequence[str] | None = None,
        extra_cxx_flags: Sequence[str] = (),
    ) -> str:
        """What the key is made of, one part per line.

        The lines in which two of them differ tell why a kernel was compiled again.
        """
        return self._core.explain_key(
            source, _level(optimize_level), debug_info, cxx_flags, extra_cxx_flags
        )

    def cache_info(self) -> CacheInfo:
        """Counters of this runtime's disk cache in this process; all zero before its first use.

        A kernel that memory had is not counted: it asks the disk nothing.
        """
        return self._core.cache_info()


def _level(optimize_level: str | int | None) -> str | None:
    """The text after `-O`; an int is as good as its digits."""
    if isinstance(optimize_level, bool):
        raise TypeError("optimize_level must be str or int, not bool")
    return str(optimize_level) if isinstance(optimize_level, int) else optimize_level


def _paths(paths: Sequence[StrPath], what: str) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        raise TypeError(f"{what} must be a sequence of paths, not one path: {paths!r}")
    return [os.fspath(path) for path in paths]


def _core_options(
    *,
    optimize_level: str | int | None = None,
    debug_info: bool | None = None,
    cxx_flags: Sequence[str] | None = None,
    extra_cxx_flags: Sequence[str] = (),
) -> tuple[str | None, bool | None, Sequence[str] | None, Sequence[str]]:
    """The options of `compile` in the order of the core's methods."""
    return _level(optimize_level), debug_info, cxx_flags, extra_cxx_flags


def _checked_options(index: int, options: Mapping[str, Any]) -> tuple[Any, ...]:
    """The options of kernels[index]."""
    known = _core_options.__kwdefaults__
    if unknown := [name for name in options if name not in known]:
        raise TypeError(
            f"options of kernels[{index}] has {unknown[0]!r}; there are: {', '.join(known)}"
        )
    return _core_options(**options)
