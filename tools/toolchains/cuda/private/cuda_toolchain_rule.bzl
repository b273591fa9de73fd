"""cuda_toolchain: a toolkit, or the reason why there is none, for toolchain resolution."""

load(":cuda_toolkit_info.bzl", "CudaToolkitInfo")

def _cuda_toolchain_impl(ctx):
    if bool(ctx.attr.home) == bool(ctx.attr.disabled):
        fail("{}: give the toolkit's `home`, or say in `disabled` why there is none".format(ctx.label))
    return [platform_common.ToolchainInfo(cuda = CudaToolkitInfo(
        components = ctx.attr.components,
        disabled = ctx.attr.disabled,
        home = ctx.file.home,
        version = ctx.attr.version,
    ))]

cuda_toolchain = rule(
    implementation = _cuda_toolchain_impl,
    attrs = {
        "components": attr.string_dict(doc = "{name: path below home} of what the toolkit has."),
        "disabled": attr.string(doc = "Why there is no toolkit: what failed, and what to do."),
        "home": attr.label(allow_single_file = True, doc = "The folder with bin, include, lib and nvvm."),
        "version": attr.string(mandatory = True),
    },
)
