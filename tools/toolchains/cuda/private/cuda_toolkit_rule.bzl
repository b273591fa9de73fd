"""cuda_toolkit: the toolkit that the build uses, as a folder."""

load("//tools/toolchains/cuda:versions.bzl", "LOCAL_CUDA")
load(":cuda_toolkit_info.bzl", "CudaToolkitInfo", "require_cuda")

CUDA_TOOLCHAIN_TYPE = str(Label("//tools/toolchains/cuda:toolchain_type"))

_FLAG = "//tools/toolchains/cuda:version"

# For target_compatible_with: skips a target where the toolkit is disabled.
CUDA_AVAILABLE = select({
    Label("//tools/toolchains/cuda:is_" + LOCAL_CUDA): [Label("@cuda_local//:available")],
    "//conditions:default": [Label("//tools/toolchains/cuda:pinned_available")],
})

def _version_transition_impl(settings, attr):
    return {_FLAG: attr.version or settings[_FLAG]}

_version_transition = transition(
    implementation = _version_transition_impl,
    inputs = [_FLAG],
    outputs = [_FLAG],
)

def _cuda_toolkit_impl(ctx):
    info = ctx.toolchains[CUDA_TOOLCHAIN_TYPE].cuda
    require_cuda(info, ctx.attr.components, ctx.label)
    return [
        DefaultInfo(files = depset([info.home]), runfiles = ctx.runfiles([info.home])),
        info,
        platform_common.TemplateVariableInfo({"CUDA_HOME": info.home.path}),
    ]

cuda_toolkit = rule(
    implementation = _cuda_toolkit_impl,
    attrs = {
        "components": attr.string_list(doc = "What must be there: names of versions.bzl's CUDA_COMPONENTS."),
        "version": attr.string(doc = "Another version than the build's."),
        "_allowlist_function_transition": attr.label(default = "@bazel_tools//tools/allowlists/function_transition_allowlist"),
    },
    cfg = _version_transition,
    provides = [CudaToolkitInfo],
    toolchains = [CUDA_TOOLCHAIN_TYPE],
)
