"""The pinned clang, lld, libc++ and glibc headers of the ziglang wheel, as a repository.

zig builds libc++, libc++abi, libunwind, compiler_rt and glibc's stubs from source when it first links.
That is done here, once, at fetch: a dummy program and a dummy library are linked with --verbose, and
the archives that zig names on its ld.lld lines are kept in rt/. Link actions then call ld.lld with
those archives and need neither zig's cache nor its build time.
"""

load("//tools/wheels:pip.bzl", "check", "pip_install")

_BUILD = """\
package(default_visibility = ["//visibility:public"])

exports_files(["zig"])

# Folders as inputs: thousands of headers that never change, one entry in a sandbox each.
filegroup(
    name = "compile_files",
    srcs = ["zig", "lib"],
)

filegroup(
    name = "link_files",
    srcs = ["zig", "lib", "rt"],
)
"""

# What compiling needs of zig's library folder; the rest is source that was built into rt/.
_KEPT = [
    "include",
    "libc/include",
    "libcxx/include",
    "libcxxabi/include",
    "libunwind/include",
    "std/std.zig",
]

def _link(rctx, target, source, flags):
    """Links a dummy with --verbose; returns the inputs named on the ld.lld line."""
    result = rctx.execute(
        [rctx.path("zig"), "c++", "-target", target, "-O2", "-g0", "-fPIC", "--verbose", source, "-o", "dummy"] + flags,
        environment = {"ZIG_LIB_DIR": str(rctx.path("zig-lib"))},
        timeout = 1800,
    )
    lines = [line for line in (result.stderr + result.stdout).split("\n") if line.startswith("ld.lld ") or " ld.lld " in line]
    if result.return_code != 0 or not lines:
        fail("zig could not link a dummy for {}:\n{}{}".format(target, result.stdout, result.stderr))
    return [word for word in lines[-1].split(" ") if word.startswith("/")]

def _zig_repository_impl(rctx):
    lock = json.decode(rctx.read(rctx.attr.lock))
    check(pip_install(rctx, lock["ziglang"]["any"], "site"), "ziglang")
    rctx.execute(["mv", "site/ziglang/zig", "zig"])
    rctx.execute(["mv", "site/ziglang/lib", "zig-lib"])
    rctx.file("dummy.cc", "#include <iostream>\nint dummy() { std::cout << 1; return 0; }\nint main() { return dummy(); }\n")
    for cpu in rctx.attr.cpus:
        target = "{}-linux-gnu.{}".format(cpu, rctx.attr.glibc)
        rctx.report_progress("building libc++ for {} (once, about a minute)".format(target))
        inputs = _link(rctx, target, "dummy.cc", [])
        inputs += _link(rctx, target, "dummy.cc", ["-shared"])
        folder = "rt/" + cpu
        kept = {}
        for path in inputs:
            name = path.split("/")[-1]
            if name in kept or name == "dummy" or name.startswith("dummy.") or name.startswith("ld-linux"):
                continue
            if name.endswith(".a") or name.endswith(".o") or ".so" in name:
                kept[name] = True
                rctx.execute(["mkdir", "-p", folder])
                result = rctx.execute(["cp", path, folder + "/" + name])
                if result.return_code != 0:
                    fail("cannot keep {}: {}".format(path, result.stderr))
        for name in ["libc++.a", "libc++abi.a", "libunwind.a", "libcompiler_rt.a", "crt1.o", "libc.so.6"]:
            if name not in kept:
                fail("zig linked without {}; it named: {}".format(name, ", ".join(sorted(kept))))
    for kept in _KEPT:
        rctx.execute(["mkdir", "-p", "lib/" + kept.rpartition("/")[0]])
        result = rctx.execute(["mv", "zig-lib/" + kept, "lib/" + kept])
        if result.return_code != 0:
            fail("the ziglang wheel has no lib/{}: {}".format(kept, result.stderr))
    for path in ["dummy", "dummy.cc", "site", "zig-lib", "requirements.txt"]:
        rctx.delete(path)
    rctx.file("BUILD.bazel", _BUILD)

zig_repository = repository_rule(
    implementation = _zig_repository_impl,
    attrs = {
        "cpus": attr.string_list(mandatory = True),
        "glibc": attr.string(mandatory = True),
        "lock": attr.label(mandatory = True),
    },
)
