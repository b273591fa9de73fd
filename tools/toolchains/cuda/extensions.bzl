"""The CUDA toolkits: the module extension `cuda`, with a repository for each pinned version (cuda_13_0 ...)
and `cuda_local` for one of this machine. Each is fetched when something first needs it."""

load("//tools/toolchains/cuda:versions.bzl", "CUDA_COMPONENTS", "CUDA_VERSIONS", "repository_name")
load("//tools/toolchains/cuda/private:local_cuda_repository.bzl", "local_cuda_repository")
load("//tools/toolchains/cuda/private:pinned_cuda_repository.bzl", "pinned_cuda_repository")

def _cuda_impl(_mctx):
    for version, group in CUDA_VERSIONS.items():
        pinned_cuda_repository(
            name = repository_name(version),
            # There is no wheel of compute-sanitizer.
            components = [name for name in CUDA_COMPONENTS if name != "sanitizer"],
            cuda_version = version,
            group = group,
            lock = Label("//tools/wheels:wheels.lock.json"),
        )
    local_cuda_repository(name = "cuda_local")

cuda = module_extension(implementation = _cuda_impl)
