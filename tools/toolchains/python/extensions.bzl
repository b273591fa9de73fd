"""The Python interpreters that we build and test with: the module extension `pythons`.

Public profile: rules_python's hermetic interpreters, one repository a version (python_3_10 ...).
Debian profile (DEEP_JIT_PROFILE=debian): those that are on the machine; a missing one is named and
what needs it is skipped. `@pythons//:defs.bzl` says which there are.
"""

load("@rules_python//python:repositories.bzl", "python_register_toolchains")
load("//tools/toolchains/python:versions.bzl", "PREFERRED_PYTHON", "PYTHON_VERSIONS", "repository_name")
load("//tools/toolchains/python/private:local_python.bzl", "find_python", "local_python")

_DEFS = """\
"Which Python versions there are here."

AVAILABLE_PYTHONS = {available}
DEFAULT_PYTHON = "{default}"
"""

def _pythons_hub_impl(rctx):
    available = rctx.attr.available
    default = PREFERRED_PYTHON if PREFERRED_PYTHON in available else available[-1]
    rctx.file("BUILD.bazel", "")
    rctx.file("defs.bzl", _DEFS.format(available = repr(available), default = default))

_pythons_hub = repository_rule(
    implementation = _pythons_hub_impl,
    attrs = {"available": attr.string_list(mandatory = True, allow_empty = False)},
)

def _pythons_impl(mctx):
    if mctx.os.environ.get("DEEP_JIT_PROFILE") == "debian":
        available = [version for version in PYTHON_VERSIONS if find_python(mctx, version)]
        missing = [version for version in PYTHON_VERSIONS if version not in available]
        if missing:
            # buildifier: disable=print
            print("No Python {} with headers here; what needs it is skipped.".format(", ".join(missing)))
        for version in PYTHON_VERSIONS:
            local_python(name = repository_name(version), python_version = version)
    else:
        available = PYTHON_VERSIONS
        for version in PYTHON_VERSIONS:
            python_register_toolchains(
                name = repository_name(version),
                python_version = version,
                register_toolchains = False,
            )
    _pythons_hub(name = "pythons", available = available)

pythons = module_extension(
    implementation = _pythons_impl,
    environ = ["DEEP_JIT_PROFILE", "PYENV_ROOT"],
)
