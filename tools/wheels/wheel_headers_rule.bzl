"""wheel_headers: the C++ headers that a wheel ships, as a library to depend on."""

load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _wheel_headers_impl(ctx):
    # Copied: headers of a wheel are found by the compiler one by one, and Bazel knows the wheel as one
    # folder of the source tree only, of which it would not know that they belong to it.
    headers = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run_shell(
        command = 'cp -RL "$1"/. "$2"',
        arguments = [ctx.file.wheel.path + "/" + ctx.attr.folder, headers.path],
        inputs = [ctx.file.wheel],
        outputs = [headers],
        mnemonic = "WheelHeaders",
    )
    context = cc_common.create_compilation_context(
        headers = depset([headers]),
        system_includes = depset([headers.path]),
    )
    return [DefaultInfo(files = depset([headers])), CcInfo(compilation_context = context)]

wheel_headers = rule(
    implementation = _wheel_headers_impl,
    attrs = {
        "folder": attr.string(doc = "The include directory in the wheel.", mandatory = True),
        "wheel": attr.label(doc = "The wheel's folder, @pypi//NAME:files.", allow_single_file = True, mandatory = True),
    },
)
