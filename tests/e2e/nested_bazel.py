# SPDX-License-Identifier: MIT
"""Runs this repository's launcher in another workspace, from inside a test."""

import os
import pathlib
import subprocess

_RUNFILES = pathlib.Path(os.environ["RUNFILES_DIR"])

# The test's own files, and the workspace that they are links into.
HERE = _RUNFILES / os.environ["TEST_WORKSPACE"]
REPOSITORY = (HERE / "MODULE.bazel").resolve().parent


def run(launcher, workspace, zig_repository, *arguments, startup=(), expected=0):
    """Runs `bazelw STARTUP ARGUMENTS` in a workspace; returns its output.

    Fails when Bazel's exit code is not the expected one.

    The compiler that this build has fetched serves the nested one too, as `zig_repository`; without
    it that one would fetch it again.
    """
    zig = next(_RUNFILES.glob("*cc~zig/zig")).resolve().parent
    result = subprocess.run(
        [
            str(launcher),
            *startup,
            "--max_idle_secs=5",
            *arguments,
            f"--override_repository={zig_repository}={zig}",
            f"--sandbox_add_mount_pair={zig}",  # should it lie below /tmp
        ],
        cwd=workspace,
        # The outer test's report is not the nested one's to write.
        env={**os.environ, "HOME": os.environ.get("HOME", "/root"), "XML_OUTPUT_FILE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == expected, result.stdout
    return result.stdout
