"""The CUDA toolkits that are pinned: data.

The wheels of a version, by name, version and hash, are the group "cuda-VERSION" of
//tools/wheels:requirements.json.
"""

# What a build uses unless --//tools/toolchains/cuda:version says otherwise.
DEFAULT_CUDA_VERSION = "13.0"

CUDA_VERSIONS = {
    "13.0": "cuda-13.0",
    "13.3": "cuda-13.3",
}

# The machines that these wheels are locked for, as in their tags.
CUDA_CPUS = ["x86_64"]

# The version that stands for a toolkit of this machine; see --config=local_cuda.
LOCAL_CUDA = "local"

# What a toolkit consists of: the file, in its home folder, that shows that a component is there.
# The first that exists counts.
CUDA_COMPONENTS = {
    "cccl": ["include/cccl/cuda/std/version", "include/cuda/std/version"],
    "cuobjdump": ["bin/cuobjdump"],
    "headers": ["include/cuda.h"],
    "libdevice": ["nvvm/libdevice/libdevice.10.bc"],
    "nvcc": ["bin/nvcc"],
    "nvdisasm": ["bin/nvdisasm"],
    "nvrtc": ["lib/libnvrtc.so.13", "lib64/libnvrtc.so.13", "lib/libnvrtc.so.12", "lib64/libnvrtc.so.12"],
    "nvvm": ["nvvm/bin/cicc"],
    "ptxas": ["bin/ptxas"],
    "sanitizer": ["bin/compute-sanitizer"],
}

def repository_name(version):
    """The repository of a version's toolkit."""
    return "cuda_" + version.replace(".", "_")
