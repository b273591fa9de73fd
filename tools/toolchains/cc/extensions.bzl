"""The pinned C++ compiler: the module extension `cc`, with the repository `zig`."""

load("//tools/toolchains/cc:versions.bzl", "CPUS", "GLIBC")
load("//tools/toolchains/cc/private:gcc_repository.bzl", "gcc_repository")
load("//tools/toolchains/cc/private:zig_repository.bzl", "zig_repository")

def _cc_impl(_mctx):
    zig_repository(
        name = "zig",
        cpus = CPUS,
        glibc = GLIBC,
        lock = Label("//tools/wheels:wheels.lock.json"),
    )
    gcc_repository(
        name = "gcc",
        config = str(Label("//tools/toolchains/cc/private:cc_toolchain_config.bzl")),
    )

cc = module_extension(implementation = _cc_impl)
