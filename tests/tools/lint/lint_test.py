# SPDX-License-Identifier: MIT
"""Every source file of the workspace is formatted and clean; the linter finds what is not."""

import os
import pathlib

import lint
import pytest


@pytest.fixture
def tools():
    return lint.pinned_tools(os.environ["RUNFILES_DIR"])


def test_workspace_is_clean(tools):
    # The runfile is a link to the real file: the workspace is where that lies.
    module = pathlib.Path(os.environ["RUNFILES_DIR"], os.environ["TEST_WORKSPACE"], "MODULE.bazel")
    failures, counts = lint.lint(module.resolve().parent, tools, fix=False)
    assert counts["cc"] > 0 and counts["python"] > 0 and counts["bazel"] > 0 and counts["shell"] > 0
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.cc", "// SPDX-License-Identifier: MIT\nint  x;\n", "clang-format"),
        ("a.hpp", "int x;\n", "SPDX"),
        ("a.cc", "// SPDX-License-Identifier: MIT\n// \u00e9\n", "not ASCII"),
        ("a.py", "# SPDX-License-Identifier: MIT\nimport os\n", "F401"),
        ("a.py", "# SPDX-License-Identifier: MIT\nx = [1,2]\n", "ruff format"),
        ("a.sh", "#!/bin/sh\n# SPDX-License-Identifier: MIT\necho $1\n", "SC2086"),
        ("BUILD.bazel", 'filegroup(name="a")\n', "buildifier"),
    ],
)
def test_each_fault_is_found(tmp_path, tools, name, text, complaint):
    (tmp_path / "pyproject.toml").write_text('[tool.ruff.lint]\nselect = ["F"]\n')
    (tmp_path / ".clang-format").write_text("BasedOnStyle: Google\n")
    (tmp_path / name).write_text(text, encoding="utf-8")
    failures, _ = lint.lint(tmp_path, tools, fix=False)
    assert complaint in "\n".join(failures)
