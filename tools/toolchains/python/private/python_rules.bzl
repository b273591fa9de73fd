"""python_binary and pytest_test: a start script for an interpreter of the wanted version."""

load("@pythons//:defs.bzl", "AVAILABLE_PYTHONS", "DEFAULT_PYTHON")
load("@rules_python//python:py_info.bzl", "PyInfo")
load("//tools/toolchains/python:versions.bzl", "PYTHON_VERSIONS")

_TYPE = "//tools/toolchains/python:toolchain_type"
_FLAG = "//tools/toolchains/python:version"

# -B: nothing is written beside sources. -S: the interpreter's own site-packages stay out; what a program
# imports besides the standard library is in its runfiles.
_START = """\
#!/usr/bin/env bash
set -eu
runfiles=${{RUNFILES_DIR:-${{TEST_SRCDIR:-$(cd "$(dirname "$0")" && pwd)/$(basename "$0").runfiles}}}}
export RUNFILES_DIR=$runfiles PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONPATH={path}
exec {interpreter} -B -S {arguments} "$@"
"""

_PYTEST = "-m pytest -p no:cacheprovider --import-mode=importlib -ra --rootdir=\"$runfiles/{workspace}\" ${{XML_OUTPUT_FILE:+--junitxml=\"$XML_OUTPUT_FILE\"}} {sources}"

def _version_transition_impl(_settings, attr):
    return {_FLAG: attr.python_version}

_version_transition = transition(
    implementation = _version_transition_impl,
    inputs = [],
    outputs = [_FLAG],
)

def _quote(path):
    return "\"$runfiles/{}\"".format(path)

def _in_runfiles(ctx, file):
    path = file.short_path
    return path[3:] if path.startswith("../") else ctx.workspace_name + "/" + path

def _python_impl(ctx):
    runtime = ctx.toolchains[_TYPE].py3_runtime
    imports = depset(transitive = [dep[PyInfo].imports for dep in ctx.attr.deps if PyInfo in dep]).to_list()
    path = ":".join([_quote(entry) for entry in [ctx.workspace_name] + imports])
    sources = " ".join([_quote(_in_runfiles(ctx, src)) for src in ctx.files.srcs])
    if ctx.attr.pytest:
        arguments = _PYTEST.format(workspace = ctx.workspace_name, sources = sources)
    else:
        arguments = _quote(_in_runfiles(ctx, ctx.file.main))
    script = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(script, _START.format(
        path = path,
        arguments = arguments,
        interpreter = runtime.interpreter_path or _quote(_in_runfiles(ctx, runtime.interpreter)),
    ), is_executable = True)
    runfiles = ctx.runfiles(files = ctx.files.srcs + ctx.files.data, transitive_files = runtime.files)
    runfiles = runfiles.merge_all([target[DefaultInfo].default_runfiles for target in ctx.attr.deps + ctx.attr.data])
    return [
        DefaultInfo(executable = script, runfiles = runfiles),
        RunEnvironmentInfo(environment = ctx.attr.env),
    ]

_ATTRS = {
    "data": attr.label_list(allow_files = True),
    "deps": attr.label_list(),
    "env": attr.string_dict(),
    "main": attr.label(allow_single_file = [".py"]),
    "pytest": attr.bool(),
    "python_version": attr.string(mandatory = True, values = PYTHON_VERSIONS),
    "srcs": attr.label_list(allow_files = [".py"]),
    "_allowlist_function_transition": attr.label(default = "@bazel_tools//tools/allowlists/function_transition_allowlist"),
}

_python_program = rule(
    implementation = _python_impl,
    attrs = _ATTRS,
    cfg = _version_transition,
    executable = True,
    toolchains = [_TYPE],
)

_python_test = rule(
    implementation = _python_impl,
    attrs = _ATTRS,
    cfg = _version_transition,
    test = True,
    toolchains = [_TYPE],
)

def _compatible(version):
    return [] if version in AVAILABLE_PYTHONS else ["@platforms//:incompatible"]

def python_binary(name, main, srcs = [], python_version = DEFAULT_PYTHON, **kwargs):
    """A Python program for `bazel run`.

    Args:
        name: the target's name.
        main: the file to run.
        srcs: further Python files.
        python_version: which Python; default: the build's default.
        **kwargs: deps, data, env, visibility ... as usual.
    """
    _python_program(
        name = name,
        main = main,
        srcs = srcs + [main] if main not in srcs else srcs,
        python_version = python_version,
        target_compatible_with = _compatible(python_version),
        **kwargs
    )

def pytest_test(name, srcs, deps = [], python_versions = PYTHON_VERSIONS, target_compatible_with = [], **kwargs):
    """Tests that pytest runs, once for each Python version, and a test_suite of them all.

    Args:
        name: the suite's name; each test adds _<version>.
        srcs: the test files; a conftest.py belongs into data.
        deps: what they import; pytest itself is added.
        python_versions: which Pythons; those not on this machine are skipped.
        target_compatible_with: further constraints.
        **kwargs: data, env, size, tags ... as usual.
    """
    for version in python_versions:
        _python_test(
            name = "{}_{}".format(name, version),
            srcs = srcs,
            deps = deps + ["@pypi//pytest"],
            pytest = True,
            python_version = version,
            target_compatible_with = _compatible(version) + target_compatible_with,
            **kwargs
        )
    native.test_suite(
        name = name,
        tests = ["{}_{}".format(name, version) for version in python_versions],
    )
