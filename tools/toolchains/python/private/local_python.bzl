"""A Python interpreter that is on this machine, with its headers, as a repository.

The targets have the names that rules_python gives its hermetic interpreters: py3_runtime and
python_headers.
"""

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_python//python:py_runtime.bzl", "py_runtime")

py_runtime(
    name = "py3_runtime",
    interpreter_path = "{interpreter}",
    python_version = "PY3",
    visibility = ["//visibility:public"],
)

cc_library(
    name = "python_headers",
    hdrs = glob(
        [
            "include/**/*.h",
            "multiarch/**/*.h",
        ],
        allow_empty = True,
    ),
    includes = [
        "include",
        "multiarch",
    ],
    visibility = ["//visibility:public"],
)
"""

# Prints the interpreter's version, its own path, its headers' folder and Debian's name of the machine.
_PROBE = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2], sys.executable, sysconfig.get_paths()['include'], sysconfig.get_config_var('MULTIARCH') or 'none', sep='\\n')"

def find_python(ctx, version):
    """Looks for an interpreter on PATH, then among pyenv's.

    Args:
        ctx: a repository or module extension context.
        version: "3.10" and the like.
    Returns:
        struct(interpreter, include, multiarch) or None.
    """
    candidates = [ctx.which("python" + version)]
    pyenv = ctx.os.environ.get("PYENV_ROOT") or ctx.os.environ.get("HOME", "/root") + "/.pyenv"
    versions = ctx.path(pyenv).get_child("versions")
    if versions.exists:
        found = [v for v in versions.readdir() if v.basename.startswith(version + ".")]
        candidates += [v.get_child("bin").get_child("python" + version) for v in sorted(found, key = str, reverse = True)]
    for candidate in candidates:
        if not candidate or not candidate.exists:
            continue
        result = ctx.execute([candidate, "-c", _PROBE])
        if result.return_code != 0:
            continue
        lines = result.stdout.strip().split("\n")
        if lines[0] == version and ctx.path(lines[2]).get_child("Python.h").exists:
            return struct(interpreter = lines[1], include = lines[2], multiarch = lines[3])
    return None

def _local_python_impl(rctx):
    found = find_python(rctx, rctx.attr.python_version)
    if not found:
        fail("No Python {} with its headers on PATH or in pyenv any more: run `bazel sync` or install it.".format(rctx.attr.python_version))
    rctx.symlink(found.include, "include")

    # Debian's pyconfig.h includes <MACHINE/pythonX.Y/pyconfig.h>.
    include = rctx.path(found.include)
    machine = "{}/{}".format(found.multiarch, include.basename)
    if include.dirname.get_child(found.multiarch).get_child(include.basename).exists:
        rctx.symlink(include.dirname.get_child(found.multiarch).get_child(include.basename), "multiarch/" + machine)
    rctx.file("BUILD.bazel", _BUILD.format(interpreter = found.interpreter))

local_python = repository_rule(
    implementation = _local_python_impl,
    attrs = {"python_version": attr.string(mandatory = True)},
    environ = ["PYENV_ROOT"],
    local = True,
)
