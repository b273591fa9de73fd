"""fallback_toolchain: stands for a toolkit where no other toolchain fits, and says why none does."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("//tools/toolchains/cuda:versions.bzl", "CUDA_CPUS", "CUDA_VERSIONS", "LOCAL_CUDA")
load(":cuda_toolkit_info.bzl", "CudaToolkitInfo")

def _fallback_toolchain_impl(ctx):
    version = ctx.attr._version[BuildSettingInfo].value
    if version in CUDA_VERSIONS:
        disabled = "the pinned toolkit {} is for {} with Linux, and this build is for another machine. Install one there and use --config=local_cuda".format(
            version,
            " and ".join(CUDA_CPUS),
        )
    else:
        disabled = "there is no version \"{}\". Set --{} to one of: {}".format(
            version,
            ctx.attr._version.label,
            ", ".join(CUDA_VERSIONS.keys() + [LOCAL_CUDA]),
        )
    return [platform_common.ToolchainInfo(cuda = CudaToolkitInfo(
        components = {},
        disabled = disabled,
        home = None,
        version = version,
    ))]

fallback_toolchain = rule(
    implementation = _fallback_toolchain_impl,
    attrs = {"_version": attr.label(default = "//tools/toolchains/cuda:version")},
)
