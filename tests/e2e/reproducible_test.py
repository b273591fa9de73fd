# SPDX-License-Identifier: MIT
"""The extension has the same bytes when it is built in another folder with another output root."""

import hashlib
import os
import pathlib
import shutil
import subprocess

_RUNFILES = pathlib.Path(os.environ["RUNFILES_DIR"])
_HERE = _RUNFILES / os.environ["TEST_WORKSPACE"]
_REPOSITORY = (_HERE / "MODULE.bazel").resolve().parent
_ZIG = next(_RUNFILES.glob("*cc~zig/zig")).resolve().parent
_EXTENSION = "python/deep_jit/_core.abi3.so"


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_extension_is_byte_identical_from_another_path_and_output_root(tmp_path):
    copy = tmp_path / "another" / "place"
    shutil.copytree(
        _REPOSITORY,
        copy,
        ignore=shutil.ignore_patterns("bazel-*", ".git", "e2e", "user.bazelrc"),
        symlinks=True,
    )
    command = [
        str(copy / "bazelw"),
        f"--output_user_root={tmp_path / 'out'}",
        "--max_idle_secs=5",
        "build",
        "//python/deep_jit:_core",
        f"--override_repository=_main~cc~zig={_ZIG}",
        f"--sandbox_add_mount_pair={_ZIG}",  # should it lie below /tmp
    ]
    result = subprocess.run(
        command,
        cwd=copy,
        env={**os.environ, "HOME": os.environ.get("HOME", "/root")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    here, there = _sha256(_HERE / _EXTENSION), _sha256(copy / "bazel-bin" / _EXTENSION)
    print(f"{here}  {_REPOSITORY / _EXTENSION}\n{there}  {copy / _EXTENSION}")
    assert here == there
