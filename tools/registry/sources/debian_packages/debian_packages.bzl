"""C++ libraries whose sources Debian's packages install, as Bazel repositories.

Read in place: the repository holds a link to the folder and a BUILD file from this module.
"""

_PACKAGES = {
    # repository: (Debian package, the folder it installs, what of it is linked)
    "debian_googletest": ("googletest", "/usr/src/googletest", ["googletest", "googlemock"]),
    "debian_nlohmann_json": ("nlohmann-json3-dev", "/usr/include", ["nlohmann"]),
    "debian_xxhash": ("libxxhash-dev", "/usr/include", ["xxhash.h"]),
}

def _debian_source_impl(rctx):
    for entry in rctx.attr.entries:
        path = rctx.path(rctx.attr.folder + "/" + entry)
        if not path.exists:
            fail("{} is missing: install the Debian package {}".format(path, rctx.attr.package))
        rctx.symlink(path, entry)
    rctx.symlink(rctx.attr.build_file, "BUILD.bazel")

_debian_source = repository_rule(
    implementation = _debian_source_impl,
    attrs = {
        "build_file": attr.label(mandatory = True),
        "entries": attr.string_list(mandatory = True),
        "folder": attr.string(mandatory = True),
        "package": attr.string(mandatory = True),
    },
    local = True,
)

def _debian_packages_impl(_module_ctx):
    for name, (package, folder, entries) in _PACKAGES.items():
        _debian_source(
            name = name,
            package = package,
            folder = folder,
            entries = entries,
            build_file = Label("//:{}.BUILD.bazel".format(name)),
        )

debian_packages = module_extension(implementation = _debian_packages_impl)
