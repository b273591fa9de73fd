"""An empty stand-in for the extension that Bazel's own tools name; `bazel mod tidy` alone would use it."""

def _empty_impl(rctx):
    rctx.file("BUILD.bazel", "")

_empty = repository_rule(implementation = _empty_impl)

def _buildozer_binary_impl(_module_ctx):
    _empty(name = "buildozer_binary")

buildozer_binary = module_extension(implementation = _buildozer_binary_impl)
