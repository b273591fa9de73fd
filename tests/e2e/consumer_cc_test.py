# SPDX-License-Identifier: MIT
"""A user's repository that depends on @deep_jit builds and runs with the same launcher."""

import os
import pathlib
import subprocess

_RUNFILES = pathlib.Path(os.environ["RUNFILES_DIR"])
_REPOSITORY = (_RUNFILES / os.environ["TEST_WORKSPACE"] / "MODULE.bazel").resolve().parent
# The compiler that this build has fetched already; without it the consumer would fetch it again.
_ZIG = next(_RUNFILES.glob("*cc~zig/zig")).resolve().parent


def test_consumer_builds_and_runs_a_host_kernel():
    command = [
        str(_REPOSITORY / "bazelw"),
        "--max_idle_secs=5",
        "test",
        "//...",
        "--test_output=errors",
        f"--override_repository=deep_jit~~cc~zig={_ZIG}",
        f"--sandbox_add_mount_pair={_ZIG}",  # should it lie below /tmp
    ]
    result = subprocess.run(
        command,
        cwd=_REPOSITORY / "tests/e2e/consumer_cc",
        env={**os.environ, "HOME": os.environ.get("HOME", "/root"), "XML_OUTPUT_FILE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert "//:saxpy_test" in result.stdout and "1 test passes" in result.stdout, result.stdout
