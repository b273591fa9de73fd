"""header_units: one translation unit for each header of a library, so that none can be forgotten."""

load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

_FOLDER = "runtime/include/"

def _header_units_impl(ctx):
    units = []
    for header in ctx.attr.library[CcInfo].compilation_context.headers.to_list():
        if not header.is_source or not header.short_path.startswith(_FOLDER):
            continue
        name = header.short_path.removeprefix(_FOLDER)
        unit = ctx.actions.declare_file("{}/{}.cc".format(
            ctx.label.name,
            name.removesuffix(".hpp").replace("/", "-"),
        ))

        # First and alone; then once more, which must change nothing.
        ctx.actions.write(unit, "#include \"{0}\"\n#include \"{0}\"\n".format(name))
        units.append(unit)
    return [DefaultInfo(files = depset(units))]

header_units = rule(
    doc = "Files for the srcs of a cc_library that depends on the same library.",
    implementation = _header_units_impl,
    attrs = {"library": attr.label(mandatory = True, providers = [CcInfo])},
)
