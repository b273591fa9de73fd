"""public_headers: the project's own headers behind some C++ libraries, as files for runfiles and packages."""

load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

_FOLDERS = ("runtime/include/", "cuda/include/")

def _public_headers_impl(ctx):
    own = [
        header
        for library in ctx.attr.libraries
        for header in library[CcInfo].compilation_context.headers.to_list()
        if header.is_source and header.short_path.startswith(_FOLDERS)
    ]
    return [DefaultInfo(files = depset(own), runfiles = ctx.runfiles(own))]

public_headers = rule(
    doc = "Files below our include folders that the libraries give their users; generated links and other projects' headers stay out.",
    implementation = _public_headers_impl,
    attrs = {"libraries": attr.label_list(mandatory = True, providers = [CcInfo])},
)
