"""The system's GCC, for --config=gcc: found, checked for its version, never downloaded."""

load("//tools/toolchains/cc:versions.bzl", "MINIMUM_GCC")

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_toolchain")
load("{config}", "cc_toolchain_config")

package(default_visibility = ["//visibility:public"])

filegroup(name = "no_files")

cc_toolchain_config(
    name = "config",
    builtin_include_directories = {includes},
    compile_flags = ["-fno-canonical-system-headers"],
    compiler = "gcc",
    cpu = "x86_64",
    fastbuild_flags = ["-O0"],
    link_flags = ["-lstdc++", "-lm", "-pthread", "-Wl,-z,now"],
    sanitizers = ["asan", "tsan", "ubsan"],
    tools = {tools},
)

cc_toolchain(
    name = "toolchain",
    all_files = ":no_files",
    compiler_files = ":no_files",
    dwp_files = ":no_files",
    linker_files = ":no_files",
    objcopy_files = ":no_files",
    strip_files = ":no_files",
    supports_param_files = 1,
    toolchain_config = ":config",
)
"""

_MISSING = """\
fail("No GCC {minimum} or newer for --config=gcc. Tried: {tried}. Install Debian's g++ or put one on PATH.")
"""

def _gcc_repository_impl(rctx):
    tried = []
    for name in ["g++"] + ["g++-{}".format(version) for version in range(20, MINIMUM_GCC - 1, -1)]:
        gcc = rctx.which(name)
        if not gcc:
            continue
        version = rctx.execute([gcc, "-dumpversion"]).stdout.strip()
        if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < MINIMUM_GCC:
            tried.append("{} is {}".format(gcc, version))
            continue
        text = rctx.execute([gcc, "-E", "-v", "-x", "c++", "/dev/null"]).stderr
        lines = text.split("#include <...> search starts here:")[1].split("End of search list.")[0]
        includes = [str(rctx.path(line.strip()).realpath) for line in lines.strip().split("\n")]
        rctx.file("BUILD.bazel", _BUILD.format(
            config = rctx.attr.config,
            includes = repr(includes + [line.strip() for line in lines.strip().split("\n")]),
            tools = repr({tool: str(rctx.which(tool) or "/usr/bin/" + tool) for tool in [
                "ar",
                "cpp",
                "gcov",
                "ld",
                "nm",
                "objcopy",
                "objdump",
                "strip",
            ]} | {"gcc": str(gcc)}),
        ))
        return
    rctx.file("BUILD.bazel", _MISSING.format(minimum = MINIMUM_GCC, tried = "; ".join(tried) or "g++ (not on PATH)"))

gcc_repository = repository_rule(
    implementation = _gcc_repository_impl,
    attrs = {"config": attr.string(mandatory = True)},
    environ = ["PATH"],
    local = True,
)
