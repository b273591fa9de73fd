# SPDX-License-Identifier: MIT
"""The extension module itself (python/bindings/module.cc, convert.cc, runtime_binding.h)."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
from deep_jit import _core

_ARGUMENTS: list[Any] = ["/opt/library", "OWN", "", [], [], "", [], "tracked", ""]


def test_it_is_built_for_the_stable_abi() -> None:
    assert _core.__file__ is not None
    assert _core.__file__.endswith("_core.abi3.so")


def test_two_instances_do_not_share_types() -> None:
    spec = importlib.util.find_spec("deep_jit._core")
    assert spec is not None and spec.loader is not None
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    assert other is not _core
    assert other.DeepJITError is not _core.DeepJITError
    with pytest.raises(other.DeepJITError):
        other.HostRuntime("relative", *_ARGUMENTS[1:])


def test_importing_touches_nothing(run_python: Callable[..., str]) -> None:
    code = """
import os, sys, threading
os.environ["HOME"] = "/nowhere"
os.environ["PATH"] = ""
os.environ["DJ_JIT_NUM_THREADS"] = "not a number"
opened = []
sys.addaudithook(lambda event, args: opened.append((event, args)) if event in watched else None)
watched = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.mkdir", "ctypes.dlopen")
before = set(os.listdir("/proc/self/task")), set(os.listdir("/proc/self/fd"))
import deep_jit
jit = deep_jit.Runtime("host", env_prefix="OWN", include_dirs=["/nowhere"])
assert tuple(jit.cache_info()) == (0,) * 9, jit.cache_info()
assert before == (set(os.listdir("/proc/self/task")), set(os.listdir("/proc/self/fd")))
assert not opened, opened
assert not os.path.exists("/nowhere")
print(sorted({"numpy", "torch", "ctypes", "subprocess", "json"} & set(sys.modules)))
"""
    assert run_python(code) == "[]\n"


@pytest.mark.parametrize(
    "index, value, error, text",
    [
        (0, 1, TypeError, "library_root must be str, not int"),
        (0, "", _core.DeepJITError, "library root must not be empty"),
        (0, "relative", _core.DeepJITError, "library root must be absolute"),
        (0, "/a\0b", ValueError, "library_root must not contain a NUL"),
        (1, "", _core.DeepJITError, "prefix must not be empty"),
        (1, "DJ", _core.DeepJITError, "reserved for global environment variables"),
        (2, None, TypeError, "extra_signature must be str, not NoneType"),
        (2, "\ud800", UnicodeEncodeError, "surrogates not allowed"),
        (3, ["relative"], _core.DeepJITError, "include directory must be absolute"),
        (3, [""], _core.DeepJITError, "include directory must not be empty"),
        (3, "/one/path", TypeError, "include_dirs must be a sequence of str, not one str"),
        (3, [1], TypeError, "include_dirs must be str, not int"),
        (4, 5, TypeError, "include_prefixes must be a sequence of str, not int: 5"),
        (4, b"mylib/", TypeError, "include_prefixes must be a sequence of str"),
        (5, None, TypeError, "python_executable must be str"),
        (6, ["relative"], _core.DeepJITError, "cache directory must be absolute"),
        (6, ["/a", ""], _core.DeepJITError, "cache directory must not be empty"),
        (6, "/one/path", TypeError, "cache_dirs must be a sequence of str, not one str"),
        (6, None, TypeError, "cache_dirs must be a sequence of str, not NoneType: None"),
        (7, None, TypeError, "dependency_mode must be str, not NoneType"),
        (8, 1, TypeError, "toolkit_root must be str, not int: 1"),
        (8, "relative", _core.DeepJITError, "toolkit root must be absolute"),
        (7, "x", ValueError, "dependency_mode must be 'tracked' or 'verified', not 'x'"),
    ],
)
def test_wrong_constructor_arguments(
    index: int, value: Any, error: type[Exception], text: str
) -> None:
    arguments = list(_ARGUMENTS)
    arguments[index] = value
    with pytest.raises(error, match=text):
        _core.HostRuntime(*arguments)


def test_wrong_counts_of_arguments() -> None:
    with pytest.raises(TypeError, match="Runtime\\(\\) takes 9 positional arguments, 1 given"):
        _core.HostRuntime("/opt")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no keyword arguments"):
        _core.HostRuntime(*_ARGUMENTS, extra=1)
    core = _core.HostRuntime(*_ARGUMENTS)
    for method, count in (
        ("compile", 3),
        ("compile_many", 2),
        ("compile_without_load", 3),
        ("cache_key", 2),
        ("explain_key", 2),
    ):
        with pytest.raises(
            TypeError, match=f"{method}\\(\\) takes {count} positional arguments, 1"
        ):
            getattr(core, method)("x")
    with pytest.raises(TypeError, match="the options of cache_key\\(\\) must be a dict, not 1"):
        core.cache_key("x", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        type("Sub", (_core.HostRuntime,), {})


def test_constructing_and_failing_leaks_nothing(find_leaks: Callable[..., list[object]]) -> None:
    def exercise() -> None:
        core = _core.HostRuntime(*_ARGUMENTS)
        core.cache_info()
        refused = 0
        for call in (
            lambda: _core.HostRuntime("relative", *_ARGUMENTS[1:]),
            lambda: _core.HostRuntime(*_ARGUMENTS[:3], [1], [], "", []),
            lambda: core.compile("x", "y", {"debug_info": "not a bool"}),
        ):
            try:
                call()
            except (TypeError, _core.DeepJITError):
                refused += 1
        assert refused == 3

    types = [_core.HostRuntime, _core.CacheInfo, _core.DeepJITError]
    assert not find_leaks(exercise, [_ARGUMENTS, *_ARGUMENTS[:2], *types])
