# SPDX-License-Identifier: MIT
"""A user's repository takes its CUDA toolkit from @deep_jit: a pinned one, or the machine's."""

import pathlib

import nested_bazel
import pytest

_WORKSPACE = nested_bazel.REPOSITORY / "tests/e2e/consumer_cuda"
# The toolkit that this build has fetched serves the nested one too.
_HOME = next(nested_bazel.HERE.parent.glob("*cuda~cuda_13_0/home")).resolve()


def build(*arguments, **kwargs):
    return nested_bazel.run(
        nested_bazel.REPOSITORY / "bazelw",
        _WORKSPACE,
        "deep_jit~~cc~zig",
        "build",
        f"--override_repository=deep_jit~~cuda~cuda_13_0={_HOME.parent}",
        *arguments,
        **kwargs,
    )


def build_with_local_toolkit(home, *arguments, **kwargs):
    return build(
        "--@deep_jit//tools/toolchains/cuda:version=local",
        f"--repo_env=CUDA_HOME={home}",
        *arguments,
        **kwargs,
    )


def made(name):
    return (_WORKSPACE / "bazel-bin" / name).read_text()


def write_nvcc(home, script):
    nvcc = pathlib.Path(home, "bin/nvcc")
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f"#!/bin/sh\n{script}\n")
    nvcc.chmod(0o755)


def test_pinned_toolkit():
    build("//...", "//:release")
    assert "release 13.0, V13.0.88" in made("nvcc_version.txt")
    assert made("release.txt") == "13.0 with bin/nvcc\n"


def test_local_toolkit():
    build_with_local_toolkit(_HOME, "//...", "//:release")
    assert "release 13.0, V13.0.88" in made("nvcc_version.txt")
    assert made("release.txt") == "13.0 with bin/nvcc\n"


def test_without_a_local_toolkit_what_needs_it_is_skipped():
    build_with_local_toolkit("/no/such/cuda", "//...")
    output = build_with_local_toolkit("/no/such/cuda", "//:nvcc_version", expected=1)
    assert "Target //:nvcc_version is incompatible and cannot be built" in output


def test_a_local_toolkit_that_lacks_a_component(tmp_path):
    write_nvcc(tmp_path, "echo 'Cuda compilation tools, release 12.9, V12.9.1'")
    output = build_with_local_toolkit(tmp_path, "//:toolkit", expected=1)
    assert "//:toolkit needs ptxas of the CUDA toolkit 12.9, which has: nvcc" in output


@pytest.mark.parametrize(
    ("home", "script", "reason"),
    [
        ("/no/such/cuda", None, "CUDA_HOME is /no/such/cuda, which does not exist. Install a"),
        ("/usr", None, "CUDA_HOME is /usr, which has no bin/nvcc. Install a toolkit, set"),
        ("cuda", None, "CUDA_HOME is `cuda`: set it to the absolute path of a toolkit"),
        ("{}/silent", "exit 3", "bin/nvcc --version` told no release (exit code 3)"),
        ("{}/other", "echo clang", "bin/nvcc --version` told no release (exit code 0): clang"),
    ],
)
def test_why_there_is_no_local_toolkit(tmp_path, home, script, reason):
    home = home.format(tmp_path)
    if script:
        write_nvcc(home, script)
    output = build_with_local_toolkit(home, "//:release", expected=1)
    assert "//:release needs a CUDA toolkit, and there is none: " in output
    assert reason in output
