"""What the repositories of toolkits have in common: components, and a BUILD file."""

load("//tools/toolchains/cuda:versions.bzl", "CUDA_COMPONENTS")

_TOOLCHAIN = """\
load("{defs}", "cuda_toolchain")

cuda_toolchain(
    name = "toolchain",
    components = {components},
    home = "home",
    version = "{version}",
    visibility = ["//visibility:public"],
)
"""

_DISABLED = """\
load("{defs}", "cuda_toolchain")

cuda_toolchain(
    name = "toolchain",
    disabled = {reason},
    version = "{version}",
    visibility = ["//visibility:public"],
)
"""

# By the name that deep_jit has for itself, which holds in whatever repository the build is.
_DEFS = "@deep_jit//tools/toolchains/cuda:defs.bzl"

def find_components(rctx, home):
    """Looks for the components of versions.bzl.

    Args:
        rctx: the repository's context.
        home: the toolkit folder.
    Returns:
        {name: path below it} of what is there.
    """
    found = {}
    for name, candidates in CUDA_COMPONENTS.items():
        for candidate in candidates:
            if rctx.path("{}/{}".format(home, candidate)).exists:
                found[name] = candidate
                break
    return found

def write_toolchain(rctx, version, components, extra = ""):
    """The repository's BUILD file, with the folder `home` as the toolkit."""
    rctx.file("BUILD.bazel", _TOOLCHAIN.format(
        components = repr(components),
        defs = _DEFS,
        version = version,
    ) + extra)

def write_disabled_toolchain(rctx, version, reason, extra = ""):
    """The repository's BUILD file, without a toolkit."""
    rctx.file("BUILD.bazel", _DISABLED.format(
        defs = _DEFS,
        reason = repr(reason),
        version = version,
    ) + extra)
