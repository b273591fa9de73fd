"""The C++ compilers: the module extension `cc`, with the repositories `zig` (the pinned clang), `gcc` and
`clang` (the system's)."""

load("//tools/toolchains/cc:versions.bzl", "CPUS", "GLIBC", "MINIMUM_CLANG", "MINIMUM_GCC")
load("//tools/toolchains/cc/private:system_cc_repository.bzl", "system_cc_repository")
load("//tools/toolchains/cc/private:zig_repository.bzl", "zig_repository")

_CONFIG = str(Label("//tools/toolchains/cc/private:cc_toolchain_config.bzl"))

def _cc_impl(_mctx):
    zig_repository(
        name = "zig",
        cpus = CPUS,
        glibc = GLIBC,
        lock = Label("//tools/wheels:wheels.lock.json"),
    )
    system_cc_repository(
        name = "gcc",
        program = "g++",
        package = "g++",
        minimum = MINIMUM_GCC,
        config = _CONFIG,
        # Headers keep the names they are included by, as Bazel expects them.
        compile_flags = ["-fno-canonical-system-headers"],
        sanitizers = ["asan", "tsan", "ubsan"],
    )
    system_cc_repository(
        name = "clang",
        program = "clang++",
        package = "clang and libclang-rt-dev",
        minimum = MINIMUM_CLANG,
        config = _CONFIG,
        sanitizers = ["asan", "fuzz", "tsan", "ubsan"],
    )

cc = module_extension(implementation = _cc_impl)
