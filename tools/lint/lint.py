# SPDX-License-Identifier: MIT
"""Checks, or puts right, the format and style of every source file.

    ./bazelw run //tools/lint:fix

buildifier for Bazel's files, clang-format for C++, ruff for Python, shellcheck for scripts (checks
only), and rules of our own: an SPDX line, ASCII and at most 100 columns in C++.
"""

import os
import pathlib
import subprocess
import sys

_SKIPPED = {".git", "__pycache__", ".device", ".whl", ".bundle"}


def source_files(root):
    """Every file below root that is the project's own, sorted; links are not followed."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED
            and not name.startswith("bazel-")
            and not os.path.islink(os.path.join(folder, name))
        )
        for name in sorted(names):
            path = pathlib.Path(folder, name)
            if not path.is_symlink():
                yield path


def kind(path):
    """Which tool looks at a file; None for data and prose."""
    if path.name in ("BUILD.bazel", "MODULE.bazel") or path.suffix in (".bzl", ".bazel"):
        return "bazel"
    if path.suffix in (".cc", ".hpp", ".h"):
        return "cc"
    if path.suffix in (".py", ".pyi"):
        return "python"
    if path.suffix == ".sh" or path.name in ("bazelw", "run") or path.name.endswith(".bash"):
        return "shell"
    return None


def own_rules(path, text):
    """Complaints about one C++, Python or shell file."""
    lines = text.splitlines()
    if lines and not any("SPDX-License-Identifier: MIT" in line for line in lines[:3]):
        yield f"{path}:1: no line 'SPDX-License-Identifier: MIT' at the top"
    if kind(path) != "cc":
        return
    for number, line in enumerate(lines, 1):
        if not line.isascii():
            yield f"{path}:{number}: not ASCII"
        if len(line) > 100:
            yield f"{path}:{number}: {len(line)} columns; 100 is the limit"


def run(command, files, failures):
    """Runs a tool over files; its output is shown when it complains."""
    if not files:
        return
    result = subprocess.run(
        [*command, *map(str, files)], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        failures.append(f"$ {' '.join(command)}\n{result.stdout}{result.stderr}")


def lint(root, tools, fix):
    """All complaints about the files below root, as texts."""
    files = {}
    for path in source_files(root):
        files.setdefault(kind(path), []).append(path)
    config = f"--config={root / 'pyproject.toml'}"
    failures = []
    clang_format = [
        str(tools["clang-format"]),
        "--style=file",
        *(["-i"] if fix else ["-n", "-Werror"]),
    ]
    run(clang_format, files.get("cc"), failures)
    ruff = [str(tools["ruff"])]
    run(
        [*ruff, "format", "--no-cache", config, *([] if fix else ["--diff"])],
        files.get("python"),
        failures,
    )
    run(
        [*ruff, "check", "--no-cache", config, *(["--fix"] if fix else [])],
        files.get("python"),
        failures,
    )
    mode = (
        ["-mode=fix", "-lint=fix"]
        if fix
        else ["-mode=check", "-lint=warn", "-warnings=-module-docstring,-dict-concatenation"]
    )
    run([str(tools["buildifier"]), *mode], files.get("bazel"), failures)
    run([str(tools["shellcheck"]), "-x", f"--source-path={root}"], files.get("shell"), failures)
    for path in files.get("cc", []) + files.get("python", []) + files.get("shell", []):
        failures.extend(own_rules(path, path.read_text(encoding="utf-8")))
    counts = {name: len(paths) for name, paths in files.items() if name}
    return failures, counts


def pinned_tools(runfiles):
    """Where the tools of //tools/lint:tools lie in a runfiles folder."""
    patterns = {
        "buildifier": "*buildifier*/buildifier",
        "clang-format": "*pypi_clang_format_any*/site/clang_format/data/bin/clang-format",
        "ruff": "*pypi_ruff_any*/site/bin/ruff",
        "shellcheck": "*pypi_shellcheck_any*/site/bin/shellcheck",
    }
    tools = {}
    for name, pattern in patterns.items():
        found = sorted(pathlib.Path(runfiles).glob(pattern))
        if not found:
            sys.exit(f"lint: no {name} in {runfiles}; looked for {pattern}")
        tools[name] = found[0]
    return tools
