# SPDX-License-Identifier: MIT
"""The extension has the same bytes when it is built in another folder with another output root."""

import hashlib
import shutil

import nested_bazel

_EXTENSION = "python/deep_jit/_core.abi3.so"


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_extension_is_byte_identical_from_another_path_and_output_root(tmp_path):
    copy = tmp_path / "another" / "place"
    shutil.copytree(
        nested_bazel.REPOSITORY,
        copy,
        ignore=shutil.ignore_patterns("bazel-*", ".git", "e2e", "user.bazelrc"),
        symlinks=True,
    )
    nested_bazel.run(
        copy / "bazelw",
        copy,
        "_main~cc~zig",
        "build",
        "//python/deep_jit:_core",
        startup=[f"--output_user_root={tmp_path / 'out'}"],
    )
    here = _sha256(nested_bazel.HERE / _EXTENSION)
    there = _sha256(copy / "bazel-bin" / _EXTENSION)
    print(f"{here}  {nested_bazel.REPOSITORY / _EXTENSION}\n{there}  {copy / _EXTENSION}")
    assert here == there
