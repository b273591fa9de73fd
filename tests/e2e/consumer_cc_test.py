# SPDX-License-Identifier: MIT
"""A user's repository that depends on @deep_jit builds and runs with the same launcher."""

import nested_bazel


def test_consumer_builds_and_runs_a_host_kernel():
    output = nested_bazel.run(
        nested_bazel.REPOSITORY / "bazelw",
        nested_bazel.REPOSITORY / "tests/e2e/consumer_cc",
        "deep_jit~~cc~zig",
        "test",
        "//...",
        "--test_output=errors",
    )
    assert "//:saxpy_test" in output and "1 test passes" in output, output


def test_a_build_without_cuda_fetches_no_toolkit():
    execution_root = (nested_bazel.REPOSITORY / "tests/e2e/consumer_cc/bazel-consumer_cc").resolve()
    repositories = {path.name for path in (execution_root.parents[1] / "external").iterdir()}
    assert "deep_jit~~cc~zig" in repositories
    assert [name for name in repositories if "~cuda~" in name] == []
