# SPDX-License-Identifier: MIT
"""Formats the workspace with the pinned tools: ./bazelw run //tools/lint:fix."""

import os
import pathlib
import sys

import lint


def main():
    root = pathlib.Path(os.environ["BUILD_WORKSPACE_DIRECTORY"])
    failures, counts = lint.lint(root, lint.pinned_tools(os.environ["RUNFILES_DIR"]), fix=True)
    print("\n".join(failures))
    print("files looked at:", counts)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
