"""The headers of a C++ library as files, so that a test is run again when one of them changes."""

load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _library_headers_impl(ctx):
    headers = ctx.attr.library[CcInfo].compilation_context.headers
    return [DefaultInfo(files = headers, runfiles = ctx.runfiles(transitive_files = headers))]

library_headers = rule(
    implementation = _library_headers_impl,
    attrs = {"library": attr.label(mandatory = True, providers = [CcInfo])},
)
