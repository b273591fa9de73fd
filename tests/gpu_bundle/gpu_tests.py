# SPDX-License-Identifier: MIT
"""The bundle's GPU tests, started by Bazel: ./bazelw test --config=gpu //tests/gpu_bundle/..."""

import pathlib
import subprocess
import sys
import tarfile

_BUNDLE = pathlib.Path(__file__).with_name("gpu_bundle.tar")


def test_everything_in_the_bundle_passes(tmp_path):
    with tarfile.open(_BUNDLE) as archive:
        archive.extractall(tmp_path)
    command = [sys.executable, tmp_path / "gpu_bundle/run.py", "--sanitizer"]
    assert subprocess.run(command, check=False).returncode == 0
