# SPDX-License-Identifier: MIT
"""Fixtures of all Python tests: runtimes with own caches, compilers to control, child processes."""

import dataclasses
import faulthandler
import gc
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import deep_jit
import pytest

_HANG_SECONDS = 240

SCALE = """
__global__ void scale(float* out, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i];
}
"""


@pytest.fixture(autouse=True)
def _watchdog() -> Iterator[None]:
    """Ends the process with all stacks when a test hangs, also when it hangs with the GIL held."""
    faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the user's changes what a test sees."""
    for name in list(os.environ):
        if name.startswith(("DJ_", "DJTEST_")) and name != "DJTEST_JIT_CACHE_DIR":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[deep_jit.Runtime]:
    """One runtime for tests that only need kernels; its cache lives as long as the session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJTEST_JIT_CACHE_DIR", str(tmp_path_factory.mktemp("shared_cache")))
        yield deep_jit.Runtime("host", env_prefix="DJTEST")


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, used by every runtime with the prefix OWN."""
    path = tmp_path / "cache_root"
    monkeypatch.setenv("OWN_JIT_CACHE_DIR", str(path))
    return path


@pytest.fixture
def own_runtime(cache_dir: Path) -> deep_jit.Runtime:
    """A fresh runtime on the empty cache of `cache_dir`."""
    return deep_jit.Runtime("host", env_prefix="OWN")


@pytest.fixture
def scale_source() -> str:
    return SCALE


@pytest.fixture(scope="session")
def compiler_command(runtime: deep_jit.Runtime) -> list[str]:
    """The compiler that DeepJIT finds here."""
    entry = runtime.compile_without_load("probe", "__global__ void probe() {}")
    return json.loads((entry / "meta.json").read_text())["compiler_info"]["command"]


@dataclasses.dataclass(frozen=True)
class GatedCompiler:
    """A compiler that waits before each compilation until the test lets it go on.

    Several may wait at once: the test holds both ends of both pipes, so that no line is lost.
    """

    path: Path
    started: Path  # FIFO: one line, the process id, for each compilation that starts
    gate: Path  # FIFO: each compilation waits for one line
    runs: Path  # one line per compilation
    started_pipe: io.FileIO
    gate_pipe: io.FileIO

    def wait_until_started(self) -> int:
        """Process id of the next compiler, once it runs."""
        line = b""
        while not line.endswith(b"\n"):
            line += self.started_pipe.read(1)
        return int(line)

    def open_gate(self) -> None:
        """Lets one compiler go on, now or when it comes."""
        self.gate_pipe.write(b"\n")  # one byte: readers cannot share it

    def count_runs(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0


@pytest.fixture
def gated_compiler(
    tmp_path: Path, compiler_command: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[GatedCompiler]:
    """Makes runtimes with the prefix OWN use a GatedCompiler around the real one."""
    paths = [tmp_path / name for name in ("gated_c++", "started", "gate", "runs")]
    pipes = []
    for fifo in paths[1:3]:
        os.mkfifo(fifo)
        pipes.append(io.FileIO(os.open(fifo, os.O_RDWR), "r+"))
    compiler = GatedCompiler(*paths, *pipes)
    real = shlex.join(compiler_command)
    compiler.path.write_text(
        "#!/bin/sh\n"
        f'case " $* " in *" --version "*) exec {real} "$@";; esac\n'
        f"echo run >> {shlex.quote(str(compiler.runs))}\n"
        f"echo $$ > {shlex.quote(str(compiler.started))}\n"
        f"read line < {shlex.quote(str(compiler.gate))}\n"
        f'exec {real} "$@"\n'
    )
    compiler.path.chmod(0o755)
    monkeypatch.setenv("OWN_JIT_CXX_COMPILER", str(compiler.path))
    yield compiler
    for pipe in pipes:  # whoever still waits reads the end
        pipe.close()


@pytest.fixture
def find_leaks() -> Callable[[Callable[[], None], list[object]], list[object]]:
    """Calls a function many times, and returns which of the watched objects it kept or lost."""
    rounds = 50

    def find(exercise: Callable[[], None], watched: list[object]) -> list[object]:
        def count() -> list[int]:
            gc.collect()
            return [sys.getrefcount(item) for item in watched]

        exercise()
        before = count()
        for _ in range(rounds):
            exercise()
        # One reference a call would show `rounds` times; caches of the interpreter hold a few.
        changes = zip(watched, before, count(), strict=True)
        return [item for item, then, now in changes if abs(now - then) >= rounds // 2]

    return find


@pytest.fixture
def start_python() -> Callable[..., subprocess.Popen[str]]:
    """Starts a child Python that imports what this one can."""

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def run_python(start_python: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Runs a child Python, which must succeed and be silent on stderr; returns what it printed."""

    def run(code: str, *arguments: str) -> str:
        child = start_python(code, *arguments)
        out, err = child.communicate(timeout=_HANG_SECONDS)
        assert (child.returncode, err) == (0, ""), f"exit code {child.returncode}\n{out}\n{err}"
        return out

    return run
