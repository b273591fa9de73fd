# SPDX-License-Identifier: MIT
"""Where DeepJIT's C++ headers are."""

import os

from deep_jit._core import DeepJITError

_ONE_OF_THEM = os.path.join("deep_jit", "runtime", "runtime.hpp")


def get_include() -> str:
    """The folder of DeepJIT's C++ headers, for a compiler's `-I`.

    It is for extensions that embed a runtime of their own (`#include <deep_jit/python_api.hpp>`).
    The headers of xxHash, nlohmann-json and pybind11, which they include, are not in it.

    Raises:
        DeepJITError: this copy of the package has no headers beside it.
    """
    package = os.path.dirname(os.path.abspath(__file__))
    folders = [
        os.path.join(package, "include"),  # in a wheel
        os.path.normpath(os.path.join(package, "..", "..", "runtime", "include")),  # in the sources
    ]
    for folder in folders:
        if os.path.isfile(os.path.join(folder, _ONE_OF_THEM)):
            return folder
    raise DeepJITError(
        f"this copy of deep_jit has no C++ headers: no {_ONE_OF_THEM} in {' or '.join(folders)}; "
        "install a wheel of deep_jit, or use its source tree"
    )
