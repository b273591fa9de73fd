"""The CUDA toolkit of this machine, for --config=local_cuda: found, never downloaded."""

load("//tools/toolchains/cuda:versions.bzl", "LOCAL_CUDA")
load(":toolkit_folder.bzl", "find_components", "write_disabled_toolchain", "write_toolchain")

_DEFAULT_HOME = "/usr/local/cuda"

# The constraint of CUDA_AVAILABLE. Where it does not hold, Bazel names it.
_AVAILABLE = """
alias(
    name = "available",
    actual = "{}",
    visibility = ["//visibility:public"],
)
"""

def _find(rctx):
    """struct(home, version) of the toolkit, or the reason why there is none."""
    variable = rctx.os.environ.get("CUDA_HOME", "")
    home = variable or _DEFAULT_HOME
    origin = "CUDA_HOME" if variable else "CUDA_HOME is not set, and " + home
    if not home.startswith("/"):
        return "CUDA_HOME is `{}`: set it to the absolute path of a toolkit".format(home)
    nvcc = rctx.path(home + "/bin/nvcc")
    if not nvcc.exists:
        what = "has no bin/nvcc" if rctx.path(home).exists else "does not exist"
        return "{} {}. Install a toolkit, set CUDA_HOME to its folder, or leave out --config=local_cuda for a pinned one".format(
            "CUDA_HOME is {}, which".format(home) if variable else origin,
            what,
        )
    result = rctx.execute([nvcc, "--version"])
    release = result.stdout.split("release ")
    if result.return_code != 0 or len(release) < 2:
        return "`{} --version` told no release (exit code {}): {}".format(nvcc, result.return_code, (result.stdout + result.stderr).strip())
    return struct(home = home, version = release[1].split(",")[0])

def _local_cuda_repository_impl(rctx):
    found = _find(rctx)
    if type(found) == "string":
        write_disabled_toolchain(rctx, LOCAL_CUDA, found, _AVAILABLE.format("@platforms//:incompatible"))
        return
    rctx.symlink(found.home, "home")
    write_toolchain(rctx, found.version, find_components(rctx, found.home), _AVAILABLE.format("@platforms//os:linux"))

local_cuda_repository = repository_rule(
    implementation = _local_cuda_repository_impl,
    environ = ["CUDA_HOME"],
    local = True,
)
