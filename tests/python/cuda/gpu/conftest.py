# SPDX-License-Identifier: MIT
"""Fixtures of the tests on a GPU, which need pytest, torch and deep_jit on sys.path, no more."""

import ctypes
import importlib
from collections.abc import Iterator

import deep_jit
import pytest


def _why_not() -> str | None:
    """Why these tests cannot run here; None when they can."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no NVIDIA driver: {error}"
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        return f"no torch: {error}"
    return None if torch.cuda.is_available() else "torch sees no GPU"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if reason := _why_not():
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def jit(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator["deep_jit.Runtime[deep_jit.CudaKernel]"]:
    yield deep_jit.Runtime(
        "cuda", env_prefix="GPUTEST", cache_dirs=[tmp_path_factory.mktemp("cache")]
    )
