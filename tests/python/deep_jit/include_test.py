# SPDX-License-Identifier: MIT
"""deep_jit.get_include (python/deep_jit/_include.py)."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import deep_jit
import pytest

_PACKAGE = Path(deep_jit.__file__).parent


def test_every_header_of_the_project_that_is_included_is_there() -> None:
    folder = Path(deep_jit.get_include())
    assert folder.is_absolute()
    headers = list((folder / "deep_jit").rglob("*.hpp"))
    names = {str(header.relative_to(folder)) for header in headers}
    assert {
        "deep_jit/runtime/runtime.hpp",
        "deep_jit/python_api.hpp",
        "deep_jit/base/gil.hpp",
        "deep_jit/backend/host/backend.hpp",
    } <= names
    for header in headers:
        for included in re.findall(r'#include "(deep_jit/[^"]+)"', header.read_text()):
            assert included in names, f"{header} includes {included}"


def _copy_package(target: Path) -> Path:
    """The package as a wheel would have it, without headers."""
    package = target / "site" / "deep_jit"
    shutil.copytree(_PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


_PRINT = """
import sys
sys.path.insert(0, sys.argv[1])
import deep_jit
try:
    print(deep_jit.get_include())
except deep_jit.DeepJITError as error:
    print("error:", error)
"""


def test_headers_inside_the_package_come_first(
    tmp_path: Path, run_python: Callable[..., str]
) -> None:
    package = _copy_package(tmp_path)
    header = package / "include" / "deep_jit" / "runtime" / "runtime.hpp"
    header.parent.mkdir(parents=True)
    header.touch()
    assert run_python(_PRINT, str(package.parent)) == f"{package / 'include'}\n"


@pytest.mark.parametrize("unrelated", [False, True])
def test_a_package_without_headers_says_so(
    tmp_path: Path, run_python: Callable[..., str], unrelated: bool
) -> None:
    package = _copy_package(tmp_path)
    if unrelated:  # some other project's folder in the same place
        (tmp_path / "runtime" / "include").mkdir(parents=True)
    message = run_python(_PRINT, str(package.parent))
    assert message.startswith("error: this copy of deep_jit has no C++ headers")
    assert str(package / "include") in message
    assert str(tmp_path / "runtime" / "include") in message
    assert "install a wheel" in message
