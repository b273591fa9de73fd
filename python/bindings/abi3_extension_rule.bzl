"""abi3_extension: one build of a stable-ABI extension for every Python version."""

load("@pythons//:defs.bzl", "DEFAULT_PYTHON")

_VERSION = "//tools/toolchains/python:version"

# Whatever version a test or program is for, the extension is built in the default configuration: the
# flag's value changes nothing in it, but would compile it again for each.
def _one_version_impl(_settings, _attr):
    return {_VERSION: DEFAULT_PYTHON}

_one_version = transition(
    implementation = _one_version_impl,
    inputs = [],
    outputs = [_VERSION],
)

def _abi3_extension_impl(ctx):
    extension = ctx.actions.declare_file(ctx.label.name + ".abi3.so")
    ctx.actions.symlink(output = extension, target_file = ctx.file.binary)
    return [DefaultInfo(
        files = depset([extension]),
        runfiles = ctx.runfiles([extension]),
    )]

abi3_extension = rule(
    doc = "Puts a linkshared cc_binary into the package of its Python code, as NAME.abi3.so.",
    implementation = _abi3_extension_impl,
    cfg = _one_version,
    attrs = {
        "binary": attr.label(
            doc = "The cc_binary.",
            allow_single_file = [".so"],
            mandatory = True,
        ),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)
