# SPDX-License-Identifier: MIT
"""Runtime.compile_many (python/deep_jit/_compile_many.py, python/bindings/runtime_type.cc)."""

import array
import os
import pickle
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deep_jit
import pytest

_ANSWER = "__global__ void answer(int* out) { *out = ANSWER; }"
_BROKEN = "__global__ void broken() { undeclared(); }"


def _run(kernel: deep_jit.Kernel) -> int:
    out = array.array("i", [-1])
    kernel[1, 1](out)
    return out[0]


def _source(answer: int) -> deep_jit.KernelSource:
    return deep_jit.KernelSource("answer", _ANSWER, {"extra_cxx_flags": [f"-DANSWER={answer}"]})


@pytest.mark.parametrize("jobs", [None, 1, 3, 100])
def test_kernels_come_in_order(own_runtime: deep_jit.Runtime, jobs: int | None) -> None:
    kernels = own_runtime.compile_many([_source(answer) for answer in range(5)], jobs=jobs)
    assert [_run(kernel) for kernel in kernels] == [0, 1, 2, 3, 4]
    assert own_runtime.cache_info().published == 5
    again = own_runtime.compile_many((_source(answer) for answer in (4, 0)), jobs=jobs)
    assert again == [kernels[4], kernels[0]]
    assert own_runtime.compile("answer", _ANSWER, extra_cxx_flags=["-DANSWER=2"]) == kernels[2]
    assert own_runtime.cache_info().published == 5


def test_every_way_to_write_a_request(own_runtime: deep_jit.Runtime) -> None:
    one = "__global__ void one(int* out) { *out = 1; }"
    kernels = own_runtime.compile_many(
        [
            ("one", one),
            ["one", one],
            ("one", one, {}),
            deep_jit.KernelSource("other_name", one),
            deep_jit.KernelSource(name="one", source=one, options={"optimize_level": 1}),
        ]
    )
    assert [_run(kernel) for kernel in kernels] == [1] * 5
    assert kernels[:3] == [kernels[3]] * 3
    assert kernels[4] != kernels[0]
    assert own_runtime.cache_info().published == 2


def test_nothing_to_do(own_runtime: deep_jit.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_JIT_CXX_COMPILER", "/nowhere/c++")
    assert own_runtime.compile_many([]) == []


def test_as_many_compilers_run_as_asked(own_runtime: deep_jit.Runtime, gated_compiler: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(own_runtime.compile_many, [_source(i) for i in range(4)], jobs=3)
        # Had it kept the GIL, or started fewer, this would never end.
        started = {gated_compiler.wait_until_started() for _ in range(3)}
        assert len(started) == 3
        assert gated_compiler.count_runs() == 3
        gated_compiler.open_gate()
        gated_compiler.wait_until_started()
        for _ in range(3):
            gated_compiler.open_gate()
        assert [_run(kernel) for kernel in result.result()] == [0, 1, 2, 3]


def test_failures_are_named_when_all_others_are_done(own_runtime: deep_jit.Runtime) -> None:
    with pytest.raises(deep_jit.CompileManyError) as raised:
        own_runtime.compile_many(
            [
                _source(1),
                ("broken", _BROKEN),
                _source(2),
                ("two", "__global__ void a() {}\n__global__ void b() {}"),
                ("bad name", _BROKEN),
            ],
            jobs=2,
        )
    error = raised.value
    assert isinstance(error, deep_jit.DeepJITError)
    assert [(failed.index, failed.name) for failed in error.errors] == [
        (1, "broken"),
        (3, "two"),
        (4, "bad name"),
    ]
    first, second, third = (failed.error for failed in error.errors)
    assert isinstance(first, deep_jit.CompileError) and "undeclared" in first.log
    assert isinstance(second, deep_jit.DeepJITError) and "exactly one kernel" in str(second)
    assert "must contain only letters" in str(third)
    assert error.__cause__ is first
    lines = str(error).splitlines()
    assert lines[0] == "3 of 5 kernels could not be compiled:"
    assert [line.partition(": ")[0] for line in lines[1:]] == [
        "  kernels[1] `broken`",
        "  kernels[3] `two`",
        "  kernels[4] `bad name`",
    ]
    # The others are there.
    published = own_runtime.cache_info().published
    assert [_run(kernel) for kernel in own_runtime.compile_many([_source(1), _source(2)])] == [1, 2]
    assert own_runtime.cache_info().published == published


def test_the_error_survives_pickling() -> None:
    error = deep_jit.CompileManyError(
        "text", [deep_jit.FailedKernel(3, "k", deep_jit.CompileError("why"))]
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is deep_jit.CompileManyError
    assert str(copy) == "text"
    assert copy.errors[0][:2] == (3, "k")
    assert str(copy.errors[0].error) == "why"
    assert deep_jit.CompileManyError("text").errors == []


def test_no_compiler_is_one_error(
    own_runtime: deep_jit.Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_JIT_CXX_COMPILER", "/nowhere/c++")
    with pytest.raises(deep_jit.DeepJITError, match="/nowhere/c\\+\\+") as raised:
        own_runtime.compile_many([_source(1), _source(2)])
    assert type(raised.value) is deep_jit.DeepJITError


@pytest.mark.parametrize(
    "kernels, text",
    [
        ("name", "kernels must be a sequence"),
        (_source(1), "kernels must be a sequence"),
        (["name"], r"kernels\[0\] must be \(name, source\)"),
        ([_source(1), ("name",)], r"kernels\[1\] must be \(name, source\)"),
        ([("a", "b", {}, 1)], r"kernels\[0\] must be"),
        ([("a", "b", "c")], r"options of kernels\[0\] must be a mapping, not 'c'"),
        (
            [("a", "b"), ("a", "b", {"level": 3})],
            r"kernels\[1\]: compile\(\) got an unexpected key",
        ),
        ([("a", "b", {"optimize_level": 1.5})], "optimize_level must be str"),
        ([("a", "b", {"cxx_flags": "-O3"})], "cxx_flags must be a sequence of str"),
        ([("a", b"b")], "source must be str, not bytes"),
        ([(1, "b")], "name must be str, not int"),
        (5, "iterable"),
    ],
)
def test_wrong_requests_compile_nothing(
    own_runtime: deep_jit.Runtime, cache_dir: Path, kernels: Any, text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        own_runtime.compile_many(kernels)
    assert not cache_dir.exists()


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True, "2"])
def test_wrong_jobs(own_runtime: deep_jit.Runtime, jobs: Any) -> None:
    with pytest.raises(TypeError, match="jobs must be an int of at least 1, or None"):
        own_runtime.compile_many([_source(1)], jobs=jobs)


_INTERRUPTED = """
import array, signal, sys
import deep_jit

signal.signal(signal.SIGINT, signal.default_int_handler)
sources = [("k", f"__global__ void k(int* out) {{ *out = {i}; }}") for i in range(6)]
jit = deep_jit.Runtime("host", env_prefix="OWN")
try:
    jit.compile_many(sources, jobs=2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
else:
    sys.exit("no KeyboardInterrupt")
out = array.array("i", [0])
jit.compile_many(sources[5:])[0][1, 1](out)
print("then", out[0], jit.cache_info().published, flush=True)
"""


def test_ctrl_c_stops_all(
    cache_dir: Path, gated_compiler: Any, start_python: Callable[..., subprocess.Popen[str]]
) -> None:
    child = start_python(_INTERRUPTED)
    compilers = [gated_compiler.wait_until_started() for _ in range(2)]
    child.send_signal(signal.SIGINT)
    assert child.stdout is not None
    assert child.stdout.readline() == "interrupted\n"
    for compiler in compilers:
        with pytest.raises(ProcessLookupError):
            os.kill(compiler, 0)
    assert not list((cache_dir / "cache").glob("*"))
    # The next call works.
    gated_compiler.wait_until_started()
    gated_compiler.open_gate()
    out, err = child.communicate()
    assert (out, err, child.returncode) == ("then 5 1\n", "", 0)
    assert gated_compiler.count_runs() == 3
    assert not list((cache_dir / "tmp").glob("*"))


def test_a_waiting_call_is_not_ended_by_anothers_failure(
    own_runtime: deep_jit.Runtime, gated_compiler: Any
) -> None:
    """Two batches share a kernel; each fails and succeeds on its own."""
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(own_runtime.compile_many, [_source(1), ("bad name", _ANSWER)])
        gated_compiler.wait_until_started()
        second = pool.submit(own_runtime.compile_many, [_source(1)])
        gated_compiler.open_gate()
        assert _run(second.result()[0]) == 1
        with pytest.raises(deep_jit.CompileManyError) as raised:
            first.result()
    assert [failed.index for failed in raised.value.errors] == [1]
    assert gated_compiler.count_runs() == 1
