"""cuda_release: a file that says which CUDA toolkit there is."""

load("@deep_jit//tools/toolchains/cuda:defs.bzl", "CUDA_TOOLCHAIN_TYPE", "require_cuda")

def _cuda_release_impl(ctx):
    cuda = ctx.toolchains[CUDA_TOOLCHAIN_TYPE].cuda
    require_cuda(cuda, ["nvcc"], ctx.label)
    release = ctx.actions.declare_file(ctx.label.name + ".txt")
    ctx.actions.write(release, "{} with {}\n".format(cuda.version, cuda.components["nvcc"]))
    return [DefaultInfo(files = depset([release]))]

cuda_release = rule(
    implementation = _cuda_release_impl,
    toolchains = [CUDA_TOOLCHAIN_TYPE],
)
