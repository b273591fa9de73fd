# SPDX-License-Identifier: MIT
"""The compiler options of each backend, for editors and type checkers.

The compiled part knows them from the C++ structs, and refuses what is none of them.
"""

from collections.abc import Sequence
from typing import TypedDict


class HostOptions(TypedDict, total=False):
    """Keyword arguments of `Runtime("host").compile`; what is absent or None keeps its default."""

    optimize_level: str | int | None
    """What follows `-O`: 0 to 3, "s", "fast"; default 3."""
    debug_info: bool | None
    """Whether to add `-g`; default: only under JIT_DEBUG."""
    sanitize: str | None
    """One of "address", "thread" or "undefined": builds with that sanitizer. To load an address- or
    thread-sanitized kernel, the process must have the sanitizer's run-time (LD_PRELOAD)."""
    dump_asm: bool | None
    """Keeps the assembly as `kernel.s` beside the artifact, when it is compiled anew; default: only
    under JIT_DUMP_ASM or JIT_DEBUG. Not part of the key."""
    cxx_flags: Sequence[str] | None
    """Replaces the default flags (`-std=c++20`, `-fPIC`, ...)."""
    extra_cxx_flags: Sequence[str] | None
    """Come after all other flags."""
    post_hook: str | None
    """A Python file, its path below `library_root`. It is run on each new artifact before that is
    published, with the artifact's absolute path as argument; its path and content are part of the
    key. "" is none."""


class CudaOptions(TypedDict, total=False):
    """Keyword arguments of `Runtime("cuda").compile`; what is absent or None keeps its default."""

    optimize_level: str | int | None
    """What follows `-O`; default 3."""
    use_fast_math: bool | None
    """Faster, less exact arithmetic; default False."""
    ptxas_verbose: bool | None
    """Logs what ptxas says of registers and memory; default: only under JIT_PTXAS_VERBOSE."""
    ptxas_register_usage_level: int | None
    """0 to 10, how hard ptxas tries to save registers; default 10."""
    check_no_spills: bool | None
    """Makes spilled registers an error; default: only under JIT_CHECK_NO_SPILLS."""
    check_no_local_memory: bool | None
    """Makes any use of local memory an error; default: only under JIT_CHECK_NO_LOCAL_MEMORY."""
    with_line_info: bool | None
    """Line numbers for profilers and debuggers; default: only under JIT_WITH_LINEINFO."""
    dump_ptx: bool | None
    """Keeps `kernel.ptx` beside the artifact; default: only under JIT_DUMP_PTX. Not in the key."""
    dump_sass: bool | None
    """As dump_ptx, for `kernel.sass`; default: only under JIT_DUMP_SASS."""
    arch: str | int | None
    """As in `sm_<arch>`: "90a", "100f"; default: the GPU's. Must be given where there is none."""
    nvcc_flags: Sequence[str] | None
    """Replaces the default flags (`-std=c++20`, ...)."""
    extra_nvcc_flags: Sequence[str] | None
    """Come after all other flags."""
    post_hook: str | None
    """As in HostOptions."""
    compiler: str | None
    """One of "nvcc", "nvrtc" (in this process: no host compiler, a small one in tens of ms) or
    "auto" (nvrtc where it takes the source, else nvcc); default: JIT_CUDA_COMPILER, or nvcc."""


class CompileOptions(HostOptions, CudaOptions, total=False):
    """The options of all backends; a runtime refuses those that its own backend does not have."""
