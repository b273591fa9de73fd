"""bundle: programs, packages and data with all that they need at run time, as one reproducible archive."""

load("//tools/toolchains/python:versions.bzl", "PYTHON_VERSIONS")

_PYTHON = "//tools/toolchains/python:version"

# Packages for the oldest Python, which newer ones take too.
_oldest_python = transition(
    implementation = lambda _settings, _attr: {_PYTHON: PYTHON_VERSIONS[0]},
    inputs = [],
    outputs = [_PYTHON],
)

def _place(ctx, file):
    """Where a file lies in the archive: as in runfiles, without the workspace's folder."""
    path = file.short_path
    if path.startswith("../"):
        path = "external/" + path[3:]
    elif file == ctx.file.runner:
        path = file.basename
    return "{}/{}".format(ctx.label.name, path)

def _bundle_impl(ctx):
    files = depset(
        [ctx.file.runner],
        transitive = [
            depset(transitive = [target[DefaultInfo].files, target[DefaultInfo].default_runfiles.files])
            for target in ctx.attr.srcs
        ],
    ).to_list()
    manifest = ctx.actions.declare_file(ctx.label.name + ".json")
    ctx.actions.write(manifest, json.encode({_place(ctx, file): file.path for file in files}))
    archive = ctx.actions.declare_file(ctx.label.name + ".tar")
    ctx.actions.run(
        executable = ctx.executable._archiver,
        arguments = [manifest.path, archive.path],
        inputs = files + [manifest],
        outputs = [archive],
        mnemonic = "Bundle",
    )
    return [DefaultInfo(files = depset([archive]))]

bundle = rule(
    implementation = _bundle_impl,
    attrs = {
        "runner": attr.label(allow_single_file = [".py"], mandatory = True, doc = "Lies at the top."),
        "srcs": attr.label_list(allow_files = True, cfg = _oldest_python),
        "_allowlist_function_transition": attr.label(default = "@bazel_tools//tools/allowlists/function_transition_allowlist"),
        "_archiver": attr.label(default = "//tests/gpu_bundle:archive", executable = True, cfg = "exec"),
    },
)
