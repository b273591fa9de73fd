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
}


def headers(package):
    folder = _ROOT / package / "include/deep_jit"
    return {path.relative_to(folder) for path in folder.rglob("*.hpp")}


def test_every_header_has_its_test():
    missing = {
        f"runtime/{header}"
        for header in headers("runtime")
        if not (_TESTS / "runtime" / header.parent / f"{header.stem}_test.cc").exists()
    }
    assert missing == set(_TESTED_ELSEWHERE)
    for place in _TESTED_ELSEWHERE.values():
        assert (_ROOT / place).is_dir(), place


def test_every_test_has_its_header():
    # A header that was renamed leaves its test behind.
    tests = (_TESTS / "runtime").rglob("*_test.cc")
    names = {path.relative_to(_TESTS / "runtime").as_posix() for path in tests}
    known = {f"{header.with_suffix('')}_test.cc" for header in headers("runtime")}
    assert names <= known


def test_every_header_is_offered():
    offered = {
        path.relative_to(_RUNFILES / "runtime/include/deep_jit")
        for path in (_RUNFILES / "runtime/include/deep_jit").rglob("*.hpp")
    }
    assert offered == headers("runtime")


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
