"""A repository that holds one locked group of wheels, and the hub that names them all."""

load("//tools/wheels:pip.bzl", "check", "pip_install")

_BUILD = """\
load("@rules_python//python:defs.bzl", "py_library")

# One folder as one input: a tree of thousands of files that never changes.
filegroup(
    name = "files",
    srcs = ["site"],
    visibility = ["//visibility:public"],
)

py_library(
    name = "pkg",
    data = [":files"],
    imports = ["site"],
    visibility = ["//visibility:public"],
)

exports_files(
    glob(["site/bin/*"], allow_empty = True),
    visibility = ["//visibility:public"],
)
"""

_MISSING = """\
load("@rules_python//python:defs.bzl", "py_library")

# {reason}
[py_library(
    name = name,
    target_compatible_with = ["@platforms//:incompatible"],
    visibility = ["//visibility:public"],
) for name in ["files", "pkg"]]
"""

def _wheel_repository_impl(rctx):
    wheels = json.decode(rctx.attr.wheels)
    what = "{} for Python {}".format(rctx.attr.group, rctx.attr.python)
    rctx.report_progress(what)
    result = pip_install(rctx, wheels, "site", rctx.attr.python)
    if result.return_code != 0 and rctx.attr.optional:
        # buildifier: disable=print
        print("{} is not to be had here; what needs it is skipped.".format(what))
        rctx.file("BUILD.bazel", _MISSING.format(reason = "pip found no wheel with a locked hash."))
        return
    check(result, what)
    rctx.file("BUILD.bazel", _BUILD)

wheel_repository = repository_rule(
    implementation = _wheel_repository_impl,
    attrs = {
        "group": attr.string(mandatory = True),
        "optional": attr.bool(),
        "python": attr.string(mandatory = True),
        "wheels": attr.string(mandatory = True, doc = "The lock's list, as JSON."),
    },
    environ = ["PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"],
)

def repository_name(group, python):
    """The repository of a group for a Python version ("any" or "3.10")."""
    return "pypi_{}_{}".format(group.replace("-", "_"), python.replace(".", ""))

def _wheel_hub_impl(rctx):
    rctx.file("BUILD.bazel", "")
    for group, pythons in json.decode(rctx.attr.groups).items():
        name = group.replace("-", "_")
        lines = []
        for target, actual in [(name, "pkg"), ("files", "files")]:
            if pythons == ["any"]:
                chosen = '"@{}//:{}"'.format(repository_name(group, "any"), actual)
            else:
                chosen = "select({{\n{}    }}, no_match_error = {})".format("".join([
                    '        "{}": "@{}//:{}",\n'.format(
                        rctx.attr.version_setting.format(python),
                        repository_name(group, python),
                        actual,
                    )
                    for python in pythons
                ]), repr("{} is locked for Python {} only".format(group, ", ".join(pythons))))
            lines.append('alias(\n    name = "{}",\n    actual = {},\n    visibility = ["//visibility:public"],\n)\n'.format(target, chosen))
        rctx.file(name + "/BUILD.bazel", "\n".join(lines))

wheel_hub = repository_rule(
    implementation = _wheel_hub_impl,
    attrs = {
        "groups": attr.string(mandatory = True, doc = "{group: [Python versions]}, as JSON."),
        "version_setting": attr.string(mandatory = True, doc = "The config_setting of a version, with {}."),
    },
)
