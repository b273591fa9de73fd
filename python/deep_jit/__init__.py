# SPDX-License-Identifier: MIT
"""Compile C++ and CUDA kernels while a program runs, keep the binaries, load and launch them.

    import deep_jit, numpy as np

    jit = deep_jit.Runtime("host", env_prefix="MYLIB")
    kernel = jit.compile("scale", source, optimize_level="3")
    kernel[grid, block](out, x, n)

Importing this package and declaring a Runtime do nothing else: no thread, no device, no compiler,
no cache directory. The first use does, from whichever thread it comes. The GIL is released while a
kernel is compiled, waited for, read, loaded or run, and Ctrl-C ends a compilation.
"""

from deep_jit._compile_many import CompileManyError, FailedKernel, KernelSource
from deep_jit._core import (
    BoundLaunch,
    CacheError,
    CacheInfo,
    CompileError,
    CudaBoundLaunch,
    CudaKernel,
    CudaParam,
    DeepJITError,
    Kernel,
    KernelAttributes,
    LaunchError,
    Param,
)
from deep_jit._include import get_include
from deep_jit._options import CudaOptions, HostOptions
from deep_jit._runtime import Runtime

__all__ = [
    "BoundLaunch",
    "CacheError",
    "CacheInfo",
    "CompileError",
    "CompileManyError",
    "CudaBoundLaunch",
    "CudaKernel",
    "CudaOptions",
    "CudaParam",
    "DeepJITError",
    "FailedKernel",
    "HostOptions",
    "Kernel",
    "KernelAttributes",
    "KernelSource",
    "LaunchError",
    "Param",
    "Runtime",
    "get_include",
]
