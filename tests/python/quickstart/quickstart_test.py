# SPDX-License-Identifier: MIT
"""python/quickstart/quickstart.py, run as a user would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_QUICKSTART = Path(__file__).resolve().parents[3] / "python" / "quickstart" / "quickstart.py"


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, str(_QUICKSTART), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_from_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    result = _run("--n=1000")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("DeepJIT quickstart: backend host, 1,000 floats")
    (head,) = [line for line in lines if line.startswith("kernel ")]
    assert re.split(r"\s{2,}", head) == [
        "kernel", "first call", "memory hit", "disk hit, 2nd process", "launch", "max error",
    ]  # fmt: skip
    for kernel in ("scale", "silu"):
        (row,) = [line for line in lines if line.startswith(f"{kernel} ")]
        assert re.fullmatch(rf"{kernel}(\s+[0-9.]+ [mu]s){{4}}\s+[0-9.]+e-[0-9]+", row)
        (entry,) = [line for line in lines if line.startswith(f"  {kernel}.")]
        assert re.fullmatch(rf"  {kernel}\.[0-9a-f]{{32}}/", entry)
    assert "Compiled: 2 kernels in the first process, 0 in the second." in lines
    assert sum(bool(re.fullmatch(r"    kernel\.so +[0-9,]+", line)) for line in lines) == 2
    assert not list(tmp_path.iterdir())


def test_a_given_cache_is_kept_and_used(tmp_path: Path) -> None:
    cache = tmp_path / "kept"
    assert _run("--n=7", f"--cache_dir={cache}").returncode == 0
    assert len(list((cache / "cache").iterdir())) == 2
    again = _run("--n=7", f"--cache_dir={cache}", "--backend=host")
    assert "Compiled: 0 kernels in the first process, 0 in the second." in again.stdout


def test_it_fails_when_the_numbers_are_wrong(tmp_path: Path) -> None:
    """A header that computes something else stands where the tracked one is."""
    copy = tmp_path / "quickstart.py"
    copy.write_text(_QUICKSTART.read_text())
    headers = tmp_path / "include" / "quickstart"
    headers.mkdir(parents=True)
    (headers / "silu.hpp").write_text("__device__ inline float silu(float x) { return x; }")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(
        [sys.executable, str(copy), "--n=100"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "quickstart failed: silu: max error" in result.stderr
    assert "scale: max error" not in result.stderr


def test_wrong_flags() -> None:
    assert _run("--backend=none").returncode != 0
    assert _run("--n=0").returncode != 0
    assert _run("stray").returncode != 0


def test_no_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKSTART_JIT_CXX_COMPILER", "/nowhere/c++")
    result = _run("--n=1")
    assert result.returncode == 1
    assert result.stderr.startswith("quickstart failed:")
    assert "/nowhere/c++" in result.stderr
