"""C++ libraries whose sources Debian's packages install, as Bazel repositories.

Read in place: the repository holds a link to the folder and a BUILD file from this module.
"""

_PACKAGES = {
    # repository: (Debian package, {link in the repository: what the package installs})
    "debian_benchmark": ("libbenchmark-dev", {
        "include/benchmark": "/usr/include/benchmark",
        "libbenchmark.so": "/usr/lib/{multiarch}/libbenchmark.so",
        "libbenchmark_main.a": "/usr/lib/{multiarch}/libbenchmark_main.a",
    }),
    "debian_googletest": ("googletest", {
        "googlemock": "/usr/src/googletest/googlemock",
        "googletest": "/usr/src/googletest/googletest",
    }),
    "debian_nlohmann_json": ("nlohmann-json3-dev", {"nlohmann": "/usr/include/nlohmann"}),
    "debian_xxhash": ("libxxhash-dev", {"xxhash.h": "/usr/include/xxhash.h"}),
}

def _debian_source_impl(rctx):
    cpu = {"amd64": "x86_64", "arm64": "aarch64"}.get(rctx.os.arch, rctx.os.arch)
    for link, installed in rctx.attr.links.items():
        path = rctx.path(installed.format(multiarch = cpu + "-linux-gnu"))
        if not path.exists:
            fail("{} is missing: install the Debian package {}".format(path, rctx.attr.package))
        rctx.symlink(path, link)
    rctx.symlink(rctx.attr.build_file, "BUILD.bazel")

_debian_source = repository_rule(
    implementation = _debian_source_impl,
    attrs = {
        "build_file": attr.label(mandatory = True),
        "links": attr.string_dict(mandatory = True),
        "package": attr.string(mandatory = True),
    },
    local = True,
)

def _debian_packages_impl(_module_ctx):
    for name, (package, links) in _PACKAGES.items():
        _debian_source(
            name = name,
            package = package,
            links = links,
            build_file = Label("//:{}.BUILD.bazel".format(name)),
        )

debian_packages = module_extension(implementation = _debian_packages_impl)
