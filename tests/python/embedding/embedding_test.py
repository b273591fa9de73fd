# SPDX-License-Identifier: MIT
"""Extensions that embed a runtime: deep_jit/python_api.hpp and deep_jit/base/gil.hpp."""

import array
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import alpha
import pytest

_ROOT = "/opt/alpha"
_SEVEN = "__global__ void seven(int* out) { *out = 7; }"


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No runtime, and an empty cache folder."""
    alpha.reset()
    monkeypatch.setenv("ALPHA_JIT_CACHE_DIR", str(tmp_path / "alpha_cache"))


@pytest.fixture
def gated_alpha(gated_compiler: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Alpha compiles with a compiler that waits for the test."""
    monkeypatch.setenv("ALPHA_JIT_CXX_COMPILER", str(gated_compiler.path))
    alpha.init_jit(_ROOT)
    return gated_compiler


def _run(source: str) -> int:
    out = array.array("i", [-1])
    alpha.launch(source, out.buffer_info()[0])
    return out[0]


def test_it_is_built_for_this_python() -> None:
    assert tuple(map(int, alpha.PYTHON_VERSION.split(".")[:2])) == sys.version_info[:2]


# --- get_jit ---


def test_before_init() -> None:
    for function in (alpha.get_jit, lambda: alpha.compile(_SEVEN)):
        with pytest.raises(RuntimeError, match="lazy object must be initialized before use"):
            function()


def test_init_touches_nothing_and_get_jit_gives_the_runtime(tmp_path: Path) -> None:
    alpha.init_jit(_ROOT)
    runtime = alpha.get_jit()
    assert type(runtime) is alpha.Runtime
    assert alpha.get_jit() is runtime
    assert not (tmp_path / "alpha_cache").exists()
    assert _run(_SEVEN) == 7
    assert alpha.get_jit() is runtime


def test_reassignment_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alpha.init_jit(_ROOT)
    first = alpha.get_jit()
    assert Path(alpha.compile_without_load(_SEVEN)).is_relative_to(tmp_path / "alpha_cache")
    monkeypatch.setenv("ALPHA_JIT_CACHE_DIR", str(tmp_path / "second"))
    alpha.init_jit(_ROOT)
    second = alpha.get_jit()
    assert second is not first
    assert Path(alpha.compile_without_load(_SEVEN)).is_relative_to(tmp_path / "second")


def test_a_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    alpha.init_jit(_ROOT)
    monkeypatch.setenv("ALPHA_JIT_CXX_COMPILER", "/nowhere/c++")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="/nowhere/c\\+\\+") as raised:
            alpha.get_jit()
        assert type(raised.value) is RuntimeError
        assert "initialized before use" not in str(raised.value)
    monkeypatch.delenv("ALPHA_JIT_CXX_COMPILER")
    assert type(alpha.get_jit()) is alpha.Runtime
    assert _run(_SEVEN) == 7


# --- Exceptions ---


def test_every_exception_is_a_runtime_error() -> None:
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: alpha.init_jit("relative"), "must be absolute, but is `relative`"),
        (lambda: alpha.init_throwing("bad argument") or alpha.get_jit(), "^bad argument$"),
        (lambda: alpha.init_throwing("int") or alpha.get_jit(), "no exception"),
        (lambda: alpha.init_jit(_ROOT) or alpha.compile("int x;"), "expected exactly one kernel"),
        (lambda: alpha.compile("__global__ void k() { undeclared(); }"), "undeclared"),
    ]
    for function, text in cases:
        with pytest.raises(RuntimeError, match=text) as raised:
            function()
        assert type(raised.value) is RuntimeError


def test_output_that_is_not_utf8_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = tmp_path / "noisy"
    noisy.write_text(
        "#!/bin/sh\n"
        'case " $* " in *" --version "*) echo noisy 1.0; exit 0;; esac\n'
        "printf 'before \\377 after\\n'; exit 3\n"
    )
    noisy.chmod(0o755)
    monkeypatch.setenv("ALPHA_JIT_CXX_COMPILER", str(noisy))
    alpha.init_jit(_ROOT)
    with pytest.raises(RuntimeError, match="before \N{REPLACEMENT CHARACTER} after"):
        alpha.compile("__global__ void noise() {}")


def test_what_python_code_in_a_factory_raises_stays() -> None:
    calls: list[None] = []

    def before() -> None:
        calls.append(None)
        if len(calls) == 1:
            raise LookupError("from Python")

    alpha.init_after(_ROOT, before)
    with pytest.raises(LookupError, match="from Python"):
        alpha.get_jit()
    assert type(alpha.get_jit()) is alpha.Runtime
    assert len(calls) == 2


# --- The GIL ---


@pytest.mark.parametrize("function", ["compile", "compile_without_load"])
def test_other_threads_run_while_one_compiles(gated_alpha: Any, function: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(getattr(alpha, function), _SEVEN)
        # The compiler waits for this thread: had the other kept the GIL, neither would ever go on.
        gated_alpha.wait_until_started()
        assert not result.done()
        gated_alpha.open_gate()
        result.result()
    assert _run(_SEVEN) == 7
    assert gated_alpha.count_runs() == 1


def test_other_threads_run_while_one_waits_for_a_compile(gated_alpha: Any) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(alpha.compile, _SEVEN) for _ in range(4)]
        gated_alpha.wait_until_started()
        gated_alpha.open_gate()
        for result in results:
            result.result()
    assert gated_alpha.count_runs() == 1


def test_other_threads_run_while_a_runtime_is_made(
    tmp_path: Path, gated_compiler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(
        "#!/bin/sh\n"
        f"echo $$ > '{gated_compiler.started}'\n"
        f"read line < '{gated_compiler.gate}'\n"
        "echo slow 1.0\n"
    )
    slow.chmod(0o755)
    monkeypatch.setenv("ALPHA_JIT_CXX_COMPILER", str(slow))
    alpha.init_jit(_ROOT)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(alpha.get_jit)
        gated_compiler.wait_until_started()  # asked for its version
        assert not result.done()
        gated_compiler.open_gate()
        assert type(result.result()) is alpha.Runtime


def test_other_threads_run_while_a_kernel_does() -> None:
    alpha.init_jit(_ROOT)
    source = """
        #include <time.h>
        __global__ void wait(int* flags) {
          __atomic_store_n(&flags[0], 1, __ATOMIC_RELEASE);
          const time_t end = time(nullptr) + 100;
          while (!__atomic_load_n(&flags[1], __ATOMIC_ACQUIRE)) if (time(nullptr) > end) return;
          flags[2] = 1;
        }
        """
    flags = array.array("i", [0, 0, 0])
    thread = threading.Thread(target=alpha.launch, args=(source, flags.buffer_info()[0]))
    thread.start()
    while not flags[0]:
        os.sched_yield()
    flags[1] = 1
    thread.join()
    assert flags[2] == 1


def test_waiting_for_a_factory_that_needs_the_gil() -> None:
    in_factory, go_on, second_runs = (threading.Event() for _ in range(3))

    def before() -> None:
        in_factory.set()
        go_on.wait()

    def second() -> Any:
        second_runs.set()
        return alpha.get_jit()  # held the GIL while it waited, `before` would never come back

    alpha.init_after(_ROOT, before)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(alpha.get_jit)
        in_factory.wait()
        two = pool.submit(second)
        second_runs.wait()
        go_on.set()
        assert one.result() is two.result()


def test_forms_of_one_program() -> None:
    assert alpha.probe_gil() == (1, 0, 0, 1, 1)
    here, plain = alpha.runtime_names()
    assert "gil_pybind11" in here
    assert here.replace("12gil_pybind11", "8gil_none") == plain
    assert alpha.run_in_plain_unit(_ROOT, _SEVEN) == 7
    alpha.init_jit(_ROOT)
    assert _run(_SEVEN) == 7


_EXIT = """
import sys, threading
import alpha

alpha.init_jit("/opt/alpha")
threading.Thread(target=alpha.compile, args=(sys.argv[1],), daemon=True).start()
with open(sys.argv[2]) as started:
    started.readline()
"""


def test_exit_while_a_daemon_thread_compiles(
    gated_alpha: Any, run_python: Callable[..., str]
) -> None:
    assert run_python(_EXIT, _SEVEN, str(gated_alpha.started)) == ""


# --- Two libraries ---

_TWO = """
import array, importlib, os, sys

first, second = (importlib.import_module(name) for name in sys.argv[1:])
assert first.Runtime is not second.Runtime
source = "__global__ void answer(int* out) { *out = 7; }"
for module in (first, second):
    module.init_jit("/opt/" + module.__name__)
assert type(first.get_jit()) is first.Runtime
assert type(second.get_jit()) is second.Runtime
for module in (second, first):
    path = module.compile_without_load(source)
    root = os.environ[module.__name__.upper() + "_JIT_CACHE_DIR"]
    assert path.startswith(root + "/cache/"), (path, root)
    out = array.array("i", [0])
    module.launch(source, out.buffer_info()[0])
    assert out[0] == 7
    try:
        module.compile("int none;")
    except RuntimeError as error:
        assert "expected exactly one kernel" in str(error)
    else:
        sys.exit("compiled")
first.reset()
try:
    first.get_jit()
except RuntimeError:
    pass
else:
    sys.exit("not reset")
second.get_jit()

import deep_jit

jit = deep_jit.Runtime("host", env_prefix="OWN")
assert jit.cache_key(source) == second.cache_key(source)
jit.compile("answer", source)
print("done")
"""


@pytest.mark.parametrize("order", [("alpha", "beta"), ("beta", "alpha")])
def test_two_extensions_in_one_process(
    tmp_path: Path,
    cache_dir: Path,
    run_python: Callable[..., str],
    order: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BETA_JIT_CACHE_DIR", str(tmp_path / "beta_cache"))
    assert run_python(_TWO, *order) == "done\n"
    for folder in ("alpha_cache", "beta_cache"):
        names = {path.name.split(".")[0] for path in (tmp_path / folder / "cache").iterdir()}
        assert names == {"kernel"}
