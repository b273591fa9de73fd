"""The wheels of one CUDA version, put together into one toolkit folder."""

load("//tools/toolchains/cuda:versions.bzl", "CUDA_COMPONENTS")
load("//tools/wheels:pip.bzl", "check", "pip_install")
load(":toolkit_folder.bzl", "find_components", "write_toolchain")

def _pinned_cuda_repository_impl(rctx):
    what = "CUDA " + rctx.attr.cuda_version
    lock = json.decode(rctx.read(rctx.attr.lock))
    rctx.report_progress(what)

    # The wheels share the folder nvidia/cu<major>, so that pip puts them together; it keeps the
    # executable bits, too.
    check(pip_install(rctx, lock[rctx.attr.group]["any"], "site"), what)
    major = rctx.attr.cuda_version.split(".")[0]
    rctx.execute(["mv", "site/nvidia/cu" + major, "home"])
    for path in ["site", "requirements.txt"]:
        rctx.delete(path)

    # A second NVRTC, with other defaults: a hundred megabytes that nobody asks for.
    for library in rctx.path("home/lib").readdir():
        if ".alt.so" in library.basename:
            rctx.delete(library)
    components = find_components(rctx, rctx.path("home"))
    missing = [name for name in rctx.attr.components if name not in components]
    if missing:
        fail("The wheels of {} lack {}: expected {} in {}. Correct its group in requirements.json.".format(
            what,
            ", ".join(missing),
            ", ".join([CUDA_COMPONENTS[name][0] for name in missing]),
            rctx.path("home"),
        ))
    write_toolchain(rctx, rctx.attr.cuda_version, components)

pinned_cuda_repository = repository_rule(
    implementation = _pinned_cuda_repository_impl,
    attrs = {
        "components": attr.string_list(doc = "What the wheels must have."),
        "cuda_version": attr.string(mandatory = True),
        "group": attr.string(mandatory = True, doc = "Of wheels.lock.json."),
        "lock": attr.label(mandatory = True),
    },
    environ = ["PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"],
)
