# SPDX-License-Identifier: MIT
"""The GIL is released around blocking work, and signals get through (python/bindings/gil.h)."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deep_jit
import numpy as np
import pytest

_SOURCE = "__global__ void seven(int* out) { *out = 7; }"


def _run_seven(kernel: deep_jit.Kernel) -> int:
    out = np.zeros(1, np.int32)
    kernel[1, 1](out)
    return int(out[0])


@pytest.mark.parametrize("method", ["compile", "compile_without_load"])
def test_other_threads_run_while_one_compiles(
    own_runtime: deep_jit.Runtime, gated_compiler: Any, method: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(getattr(own_runtime, method), "seven", _SOURCE)
        # The compiler waits for this thread: had the other kept the GIL, neither would ever go on.
        gated_compiler.wait_until_started()
        assert not result.done()
        gated_compiler.open_gate()
        result.result()
    assert _run_seven(own_runtime.compile("seven", _SOURCE)) == 7
    assert gated_compiler.count_runs() == 1


def test_other_threads_run_while_one_waits_for_a_compile(
    own_runtime: deep_jit.Runtime, gated_compiler: Any
) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(own_runtime.compile, "seven", _SOURCE) for _ in range(4)]
        gated_compiler.wait_until_started()
        gated_compiler.open_gate()
        assert [_run_seven(result.result()) for result in results] == [7] * 4
    assert gated_compiler.count_runs() == 1


def test_other_threads_run_while_a_kernel_does(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile(
        "wait",
        """
        #include <time.h>
        __global__ void wait(int* flags) {
          __atomic_store_n(&flags[0], 1, __ATOMIC_RELEASE);
          const time_t end = time(nullptr) + 100;
          while (!__atomic_load_n(&flags[1], __ATOMIC_ACQUIRE)) if (time(nullptr) > end) return;
          flags[2] = 1;
        }
        """,
    )
    flags = np.zeros(3, np.int32)
    thread = threading.Thread(target=lambda: kernel[1, 1](flags))
    thread.start()
    while not flags[0]:
        os.sched_yield()
    flags[1] = 1
    thread.join()
    assert flags[2] == 1


_INTERRUPTED = """
import os, signal, sys, time
import numpy as np
import deep_jit

signal.signal(signal.SIGINT, signal.default_int_handler)
source = sys.argv[1]
jit = deep_jit.Runtime("host", env_prefix="OWN")
jit.cache_key(source)
try:
    jit.compile("seven", source)
except KeyboardInterrupt:
    left = os.listdir(os.environ["OWN_JIT_CACHE_DIR"] + "/tmp")
    print("interrupted", time.monotonic(), len(left), flush=True)
else:
    sys.exit("no KeyboardInterrupt")
out = np.zeros(1, np.int32)
jit.compile("seven", source)[1, 1](out)
print("then", out[0], jit.cache_info().published, flush=True)
"""


def test_ctrl_c_ends_a_compile(
    cache_dir: Path, gated_compiler: Any, start_python: Callable[..., subprocess.Popen[str]]
) -> None:
    child = start_python(_INTERRUPTED, _SOURCE)
    compiler = gated_compiler.wait_until_started()
    sent = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout is not None
    word, when, left = child.stdout.readline().split()
    assert (word, left) == ("interrupted", "0")
    elapsed = float(when) - sent
    print(f"KeyboardInterrupt after {elapsed:.2f} s")
    assert elapsed < 30  # measured: 0.3 s; the bound is for an overloaded machine
    with pytest.raises(ProcessLookupError):
        os.kill(compiler, 0)
    assert not list((cache_dir / "cache").glob("*"))
    # The next call works.
    gated_compiler.wait_until_started()
    gated_compiler.open_gate()
    out, err = child.communicate()
    assert (out, err, child.returncode) == ("then 7 1\n", "", 0)
    assert not list((cache_dir / "tmp").glob("*"))


_HANDLER = """
import signal, sys
import deep_jit

calls = []
signal.signal(signal.SIGUSR1, lambda *_: calls.append(1))
jit = deep_jit.Runtime("host", env_prefix="OWN")
jit.compile("seven", sys.argv[1])
print(len(calls))
"""


def test_other_signal_handlers_run_during_a_compile(
    cache_dir: Path, gated_compiler: Any, start_python: Callable[..., subprocess.Popen[str]]
) -> None:
    child = start_python(_HANDLER, _SOURCE)
    gated_compiler.wait_until_started()
    child.send_signal(signal.SIGUSR1)
    gated_compiler.open_gate()
    assert child.communicate() == ("1\n", "")
    assert child.returncode == 0


_EXIT = """
import sys, threading
import deep_jit

jit = deep_jit.Runtime("host", env_prefix="OWN")
threading.Thread(target=jit.compile, args=("seven", sys.argv[1]), daemon=True).start()
with open(sys.argv[2]) as started:
    started.readline()
"""


def test_exit_while_a_daemon_thread_compiles(
    cache_dir: Path, gated_compiler: Any, run_python: Callable[..., str]
) -> None:
    assert run_python(_EXIT, _SOURCE, str(gated_compiler.started)) == ""


def test_ctrl_c_ends_the_wait_for_another_threads_compile(
    own_runtime: deep_jit.Runtime, gated_compiler: Any
) -> None:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ThreadPoolExecutor(1) as pool:
            worker = pool.submit(own_runtime.compile, "seven", _SOURCE)
            gated_compiler.wait_until_started()
            # Most likely comes while the main thread waits for the worker; right at any time.
            timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                own_runtime.compile("seven", _SOURCE)
            timer.join()
            # The worker was not interrupted.
            assert not worker.done()
            gated_compiler.open_gate()
            assert _run_seven(worker.result()) == 7
    finally:
        signal.signal(signal.SIGINT, previous)
    assert gated_compiler.count_runs() == 1
