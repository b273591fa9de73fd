"""CudaToolkitInfo: a CUDA toolkit, or why there is none."""

CudaToolkitInfo = provider(
    doc = "A CUDA toolkit, or why there is none.",
    fields = {
        "components": "{name: path below home} of what it has; the names are those of versions.bzl.",
        "disabled": "Why it cannot be used; the empty text when it can.",
        "home": "The folder (a File) with bin, include, lib and nvvm; None when disabled.",
        "version": "\"13.0\" and the like.",
    },
)

def require_cuda(info, components, user):
    """Fails unless a toolkit is there and has what is needed.

    Args:
        info: the CudaToolkitInfo.
        components: the names that are needed.
        user: who needs them, for the error.
    """
    if info.disabled:
        fail("{} needs a CUDA toolkit, and there is none: {}".format(user, info.disabled))
    missing = [name for name in components if name not in info.components]
    if missing:
        fail("{} needs {} of the CUDA toolkit {}, which has: {}".format(
            user,
            ", ".join(missing),
            info.version,
            ", ".join(sorted(info.components)),
        ))
