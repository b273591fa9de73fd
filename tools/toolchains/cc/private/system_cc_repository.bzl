"""A compiler of the system, for --config=gcc and --config=fuzz: found, checked for its version, never
downloaded."""

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_toolchain")
load("{config}", "cc_toolchain_config")

package(default_visibility = ["//visibility:public"])

filegroup(name = "no_files")

cc_toolchain_config(
    name = "config",
    builtin_include_directories = {includes},
    compile_flags = {compile_flags},
    compiler = "{compiler}",
    cpu = "x86_64",
    fastbuild_flags = ["-O0"],
    link_flags = ["-lstdc++", "-lm", "-pthread", "-Wl,-z,now"],
    sanitizers = {sanitizers},
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
fail("No {program} {minimum} or newer. Tried: {tried}. Install Debian's {package} or put one on PATH.")
"""

_TOOLS = ["ar", "cpp", "gcov", "ld", "nm", "objcopy", "objdump", "strip"]

def _system_cc_repository_impl(rctx):
    program, minimum = rctx.attr.program, rctx.attr.minimum
    tried = []
    for name in [program] + ["{}-{}".format(program, version) for version in range(40, minimum - 1, -1)]:
        compiler = rctx.which(name)
        if not compiler:
            continue
        version = rctx.execute([compiler, "-dumpversion"]).stdout.strip()
        if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < minimum:
            tried.append("{} is {}".format(compiler, version))
            continue
        text = rctx.execute([compiler, "-no-canonical-prefixes", "-E", "-v", "-x", "c++", "/dev/null"]).stderr
        search = text.split("#include <...> search starts here:")[1].split("End of search list.")[0]
        includes = [line.strip() for line in search.strip().split("\n")]
        tools = {tool: str(rctx.which(tool) or "/usr/bin/" + tool) for tool in _TOOLS}
        tools["gcc"] = str(compiler)
        rctx.file("BUILD.bazel", _BUILD.format(
            config = rctx.attr.config,
            compiler = rctx.name.split("~")[-1].split("+")[-1],
            compile_flags = repr(rctx.attr.compile_flags),
            includes = repr(includes + [str(rctx.path(include).realpath) for include in includes]),
            sanitizers = repr(rctx.attr.sanitizers),
            tools = repr(tools),
        ))
        return
    rctx.file("BUILD.bazel", _MISSING.format(
        program = program,
        minimum = minimum,
        package = rctx.attr.package,
        tried = "; ".join(tried) or "{} (not on PATH)".format(program),
    ))

system_cc_repository = repository_rule(
    implementation = _system_cc_repository_impl,
    attrs = {
        "compile_flags": attr.string_list(),
        "config": attr.string(mandatory = True),
        "minimum": attr.int(mandatory = True, doc = "The oldest major version that will do."),
        "package": attr.string(mandatory = True, doc = "The Debian package that has it."),
        "program": attr.string(mandatory = True),
        "sanitizers": attr.string_list(),
    },
    environ = ["PATH"],
    local = True,
)
