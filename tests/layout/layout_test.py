# SPDX-License-Identifier: MIT
"""Every header has its test and is offered to users; tests/README.md names tests that exist."""

import os
import pathlib
import re

_RUNFILES = pathlib.Path(os.environ["RUNFILES_DIR"], os.environ["TEST_WORKSPACE"])
_ROOT = (_RUNFILES / "MODULE.bazel").resolve().parent
_TESTS = _ROOT / "tests"

# Headers without a test of their own, and where they are tested.
_TESTED_ELSEWHERE = {
    "runtime/python_api.hpp": "tests/python/embedding",
    "cuda/artifact.hpp": "tests/cuda/compiler_nvcc_test.cc",
    "cuda/context.hpp": "tests/cuda/kernel_test.cc",
    "cuda/cuda_types.hpp": "tests/cuda/backend_second_unit.cc",
    "cuda/device_properties.hpp": "tests/cuda/device_test.cc",
    "cuda/lazy_symbol.hpp": "tests/cuda/driver_test.cc",
}

# Where a package's headers begin, and where their tests are.
_PLACES = {
    "runtime": "runtime/include/deep_jit",
    "cuda": "cuda/include/deep_jit/backend/cuda",
}


def headers(package):
    folder = _ROOT / _PLACES[package]
    return {path.relative_to(folder) for path in folder.rglob("*.hpp")}


def test_every_header_has_its_test():
    missing = {
        f"{package}/{header}"
        for package in _PLACES
        for header in headers(package)
        if not (_TESTS / package / header.parent / f"{header.stem}_test.cc").exists()
    }
    assert missing == set(_TESTED_ELSEWHERE)
    for place in _TESTED_ELSEWHERE.values():
        assert (_ROOT / place).exists(), place


def test_every_test_has_its_header():
    # A header that was renamed leaves its test behind.
    tests = (_TESTS / "runtime").rglob("*_test.cc")
    names = {path.relative_to(_TESTS / "runtime").as_posix() for path in tests}
    known = {f"{header.with_suffix('')}_test.cc" for header in headers("runtime")}
    assert names <= known


def test_every_header_is_offered():
    for package, place in _PLACES.items():
        offered = {
            path.relative_to(_RUNFILES / place) for path in (_RUNFILES / place).rglob("*.hpp")
        }
        assert offered == headers(package)


def exists(file, name):
    """Whether a test file has a test of that name."""
    path = _TESTS / file
    if not path.is_file():
        return False
    form = rf"\bTEST(_[FP])?\(\w+,\s*{name}\)" if path.suffix == ".cc" else rf"^def {name}\("
    return re.search(form, path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def sections():
    """The rows of each `### ` section of the page that is about behaviours."""
    text = (_TESTS / "README.md").read_text(encoding="utf-8")
    page = text.split("\n## ")[1]
    for section in page.split("\n### ")[1:]:
        title, *lines = section.split("\n")
        yield title, [line for line in lines if line.startswith("| ")][2:]


def named(text):
    return set(re.findall(r"`([\w/]+_test\.(?:cc|py)):(\w+)`", text))


def test_every_test_that_the_page_names_exists():
    tests = named((_TESTS / "README.md").read_text(encoding="utf-8"))
    assert len(tests) > 150
    assert [f"{file}:{name}" for file, name in sorted(tests) if not exists(file, name)] == []


def test_every_behaviour_has_a_test_and_is_counted():
    text = (_TESTS / "README.md").read_text(encoding="utf-8")
    behaviours, tests = 0, set()
    for title, rows in sections():
        for row in rows:
            assert named(row), f"{title}: no test in {row}"
        own = named("\n".join(rows))
        assert f"| {title} | {len(rows)} | {len(own)} |" in text
        behaviours += len(rows)
        tests |= own
    assert f"| all | {behaviours} | {len(tests)} |" in text


def test_what_does_not_exist_is_noticed():
    assert exists("layout/layout_test.py", "test_what_does_not_exist_is_noticed")
    assert not exists("layout/layout_test.py", "test_nothing")
    assert not exists("layout/other_test.py", "test_nothing")
