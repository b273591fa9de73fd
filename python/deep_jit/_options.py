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
