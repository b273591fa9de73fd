"""CUDA toolkits: pinned ones from wheels, one of this machine, or one of your own.

    load("@deep_jit//tools/toolchains/cuda:defs.bzl", "CUDA_AVAILABLE", "cuda_toolkit")

    cuda_toolkit(
        name = "toolkit",
        components = ["nvcc", "cuobjdump"],
        target_compatible_with = CUDA_AVAILABLE,
    )

is one folder with bin, include, lib and nvvm, for data of tests and tools of actions: its path is
`$(rootpath :toolkit)`, or `$(CUDA_HOME)` where `toolchains` names the target. What depends on it is skipped
where there is no toolkit; without CUDA_AVAILABLE it fails instead, and says why.

Which toolkit: `--@deep_jit//tools/toolchains/cuda:version` is a version of versions.bzl or `local`. Nothing
is fetched before a target asks for it.

A rule that runs a compiler of a toolkit asks for it with `toolchains = [CUDA_TOOLCHAIN_TYPE]` and finds a
CudaToolkitInfo in `ctx.toolchains[CUDA_TOOLCHAIN_TYPE].cuda`; require_cuda() tells whether it can be used.
A toolkit of your own is a `cuda_toolchain` with a `toolchain` around it that you register.
"""

load("//tools/toolchains/cuda/private:cuda_toolchain_rule.bzl", _cuda_toolchain = "cuda_toolchain")
load("//tools/toolchains/cuda/private:cuda_toolkit_info.bzl", _CudaToolkitInfo = "CudaToolkitInfo", _require_cuda = "require_cuda")
load("//tools/toolchains/cuda/private:cuda_toolkit_rule.bzl", _CUDA_AVAILABLE = "CUDA_AVAILABLE", _CUDA_TOOLCHAIN_TYPE = "CUDA_TOOLCHAIN_TYPE", _cuda_toolkit = "cuda_toolkit")

CUDA_AVAILABLE = _CUDA_AVAILABLE
CUDA_TOOLCHAIN_TYPE = _CUDA_TOOLCHAIN_TYPE
CudaToolkitInfo = _CudaToolkitInfo
cuda_toolchain = _cuda_toolchain
cuda_toolkit = _cuda_toolkit
require_cuda = _require_cuda
