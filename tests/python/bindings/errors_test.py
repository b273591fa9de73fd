# SPDX-License-Identifier: MIT
"""Exception classes and their fields (python/bindings/errors.cc)."""

import pickle
from pathlib import Path

import deep_jit
import pytest


def test_hierarchy() -> None:
    assert issubclass(deep_jit.DeepJITError, RuntimeError)
    for error in (deep_jit.CompileError, deep_jit.CacheError, deep_jit.LaunchError):
        assert issubclass(error, deep_jit.DeepJITError)
        assert error.__module__ == "deep_jit"


def test_compile_error_has_all_fields(own_runtime: deep_jit.Runtime, cache_dir: Path) -> None:
    with pytest.raises(deep_jit.CompileError) as raised:
        own_runtime.compile(
            "broken",
            "__global__ void broken() { undeclared_thing(); }",
            optimize_level=1,
            extra_cxx_flags=["-DX=1"],
        )
    error = raised.value
    assert "undeclared_thing" in error.log
    assert "undeclared_thing" in str(error)
    assert isinstance(error.command, list)
    assert "-O1" in error.command
    assert error.options["optimize_level"] == "1"
    assert error.options["extra_cxx_flags"] == ["-DX=1"]
    assert error.source_path.endswith("kernel.cc")
    assert error.source_path in error.command
    assert error.source == "__global__ void broken() { undeclared_thing(); }"
    assert own_runtime.cache_info().published == 0
    assert not list((cache_dir / "cache").glob("*"))
    assert not list((cache_dir / "tmp").glob("*"))


def test_compile_error_survives_a_noisy_compiler(
    own_runtime: deep_jit.Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = tmp_path / "noisy"
    noisy.write_text(
        "#!/bin/sh\n"
        'case " $* " in *" --version "*) echo noisy 1.0; exit 0;; esac\n'
        "printf 'before \\377\\000 after\\n'; exit 3\n"
    )
    noisy.chmod(0o755)
    monkeypatch.setenv("OWN_JIT_CXX_COMPILER", str(noisy))
    with pytest.raises(deep_jit.CompileError) as raised:
        own_runtime.compile("noise", "__global__ void noise() {}")
    assert "before \N{REPLACEMENT CHARACTER}\0 after" in raised.value.log
    assert raised.value.command[0] == str(noisy)


def test_cache_error(own_runtime: deep_jit.Runtime, cache_dir: Path) -> None:
    cache_dir.write_text("a file where the cache folder should be")
    with pytest.raises(deep_jit.CacheError, match=str(cache_dir)):
        own_runtime.compile("blocked", "__global__ void blocked() {}")


def test_launch_error_has_all_fields(runtime: deep_jit.Runtime) -> None:
    kernel = runtime.compile("tag", "__global__ void takes_int(int n) {}")
    with pytest.raises(deep_jit.LaunchError) as raised:
        kernel[1, 1]("text")
    assert (raised.value.kernel, raised.value.parameter) == ("takes_int", 0)


def test_no_compiler_is_a_plain_error(
    own_runtime: deep_jit.Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_JIT_CXX_COMPILER", "/nowhere/c++")
    with pytest.raises(deep_jit.DeepJITError, match="/nowhere/c\\+\\+") as raised:
        own_runtime.compile("x", "__global__ void x() {}")
    assert type(raised.value) is deep_jit.DeepJITError
    monkeypatch.delenv("OWN_JIT_CXX_COMPILER")
    own_runtime.compile("x", "__global__ void x() {}")[1, 1]()


def test_fields_have_defaults_and_survive_pickling() -> None:
    error = deep_jit.CompileError("text")
    assert (error.log, error.command, error.options) == ("", [], {})
    assert (error.source_path, error.source) == ("", "")
    error.log = "log"
    error.command = ["c++"]
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.log, copy.command) == (
        deep_jit.CompileError,
        "text",
        "log",
        ["c++"],
    )
    launch_error = deep_jit.LaunchError("text")
    assert (launch_error.kernel, launch_error.parameter) == ("", None)
