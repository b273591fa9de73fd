# SPDX-License-Identifier: MIT
"""deep_jit.Runtime("cuda"): nothing before its time, options, compiling without a GPU."""

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deep_jit
import pytest

_SOURCE = "__global__ void k() {}"


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def test_declaring_touches_nothing(toolkit: Path, run_python: Callable[..., str]) -> None:
    code = """
import os, sys
opened = []
watched = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.mkdir", "ctypes.dlopen")
sys.addaudithook(lambda event, args: opened.append((event, args)) if event in watched else None)
before = set(os.listdir("/proc/self/task")), set(os.listdir("/proc/self/fd"))
import deep_jit
jit = deep_jit.Runtime("cuda", env_prefix="OWN", toolkit_root=sys.argv[1])
assert jit.backend == "cuda", jit
assert tuple(jit.cache_info()) == (0,) * 9, jit.cache_info()
assert before == (set(os.listdir("/proc/self/task")), set(os.listdir("/proc/self/fd")))
assert not opened, opened
assert "libcuda" not in open("/proc/self/maps").read()
assert not os.path.exists(sys.argv[1] + "/log")
print(sorted({"numpy", "torch", "cupy", "ctypes", "subprocess", "json"} & set(sys.modules)))
"""
    assert run_python(code, str(toolkit)) == "[]\n"


_WITHOUT_DRIVER = """
import sys
import deep_jit
jit = deep_jit.Runtime("cuda", env_prefix="OWN", toolkit_root=sys.argv[1])
source = "__global__ void k() {}"
errors = []
for call in (
    lambda: jit.compile_without_load("k", source),
    lambda: jit.compile("k", source, arch="90a"),
):
    try:
        call()
    except deep_jit.DeepJITError as error:
        errors.append(str(error))
assert "CUDA architecture must be specified" in errors[0], errors[0]
assert "there is no NVIDIA driver" in errors[1], errors[1]
entry = jit.compile_without_load("k", source, arch="90a")
assert (entry / "kernel.cubin").is_file()
print(jit.cache_info().published)
"""


@pytest.mark.skipif(_has_driver(), reason="this machine has an NVIDIA driver")
def test_a_machine_without_a_driver(
    toolkit: Path, cache_dir: Path, run_python: Callable[..., str]
) -> None:
    assert run_python(_WITHOUT_DRIVER, str(toolkit)) == "1\n"


def test_options_reach_nvcc_and_the_key(cuda: Any, driver: Any, toolkit: Path) -> None:
    with pytest.raises(TypeError, match="the options are: ") as raised:
        cuda.compile("k", _SOURCE, cxx_flags=["-O3"])
    names = str(raised.value).partition("the options are: ")[2].split(", ")
    assert names == list(deep_jit.CudaOptions.__annotations__)
    options: dict[str, Any] = {
        "optimize_level": 1,
        "use_fast_math": True,
        "ptxas_register_usage_level": 5,
        "with_line_info": True,
        "arch": 80,
        "extra_nvcc_flags": ["-DTEXT=a b"],
    }
    entry = cuda.compile_without_load("k", _SOURCE, **options)
    (command,) = (toolkit / "log").read_text().splitlines()
    for flag in (
        "--gpu-architecture=sm_80",
        "-O1",
        "--use_fast_math",
        "--ptxas-options=--register-usage-level=5",
        "--generate-line-info",
        "-DTEXT=a b",
    ):
        assert flag in command
    found = json.loads((entry / "meta.json").read_text())["compiler_options"]
    assert {name: found[name] for name in options} == options | {
        "optimize_level": "1",
        "arch": "80",
    }
    keys = {cuda.cache_key(_SOURCE, **{name: options[name]}) for name in options}
    assert len(keys | {cuda.cache_key(_SOURCE)}) == len(options) + 1
    with pytest.raises(deep_jit.DeepJITError, match=r"option compiler: gcc .expected nvcc, nvrtc"):
        cuda.compile("k", _SOURCE, compiler="gcc")
    with pytest.raises(TypeError, match="ptxas_register_usage_level must be int or None, not str"):
        cuda.compile("k", _SOURCE, ptxas_register_usage_level="5")


def test_memory_disk_and_errors(cuda: Any, driver: Any, toolkit: Path) -> None:
    driver.set_kernel("_Z1kv")
    kernel = cuda.compile("k", _SOURCE)
    assert isinstance(kernel, deep_jit.CudaKernel)
    assert cuda.compile("k", _SOURCE) == kernel
    again = deep_jit.Runtime("cuda", env_prefix="OWN", toolkit_root=toolkit)
    assert again.compile("k", _SOURCE) != kernel
    assert (again.cache_info().hits, again.cache_info().published) == (1, 0)
    assert cuda.compile_many([("k", _SOURCE), ("j", _SOURCE + " ")])[0] == kernel
    with pytest.raises(deep_jit.CompileError, match="refused") as raised:
        cuda.compile("k", _SOURCE, extra_nvcc_flags=["-DREFUSE"])
    assert "-DREFUSE" in raised.value.command
    assert raised.value.options["extra_nvcc_flags"] == ["-DREFUSE"]
    assert raised.value.source == _SOURCE
    assert "error: refused" in raised.value.log


def test_no_toolkit(driver: Any, cache_dir: Path, tmp_path: Path) -> None:
    jit = deep_jit.Runtime("cuda", env_prefix="OWN", toolkit_root=tmp_path / "none")
    with pytest.raises(deep_jit.DeepJITError, match="none/bin/nvcc"):
        jit.compile("k", _SOURCE)
    with pytest.raises(deep_jit.DeepJITError, match="toolkit root must be absolute"):
        deep_jit.Runtime("cuda", env_prefix="OWN", toolkit_root="relative")
    with pytest.raises(ValueError, match="no backend 'rocm'; there is: cuda, host"):
        deep_jit.Runtime("rocm", env_prefix="OWN")


def test_not_exactly_one_kernel(cuda: Any, driver: Any) -> None:
    driver.set_kernel("__assertfail")
    with pytest.raises(deep_jit.DeepJITError, match="expected exactly one kernel"):
        cuda.compile("k", _SOURCE)
