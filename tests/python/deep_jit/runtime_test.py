# SPDX-License-Identifier: MIT
"""deep_jit.Runtime (python/deep_jit/_runtime.py)."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deep_jit
import numpy as np
import pytest

_ANSWER = "__global__ void answer(int* out) { *out = ANSWER; }"


def _run(kernel: deep_jit.Kernel) -> int:
    out = np.zeros(1, np.int32)
    kernel[1, 1](out)
    return int(out[0])


def test_scale_against_numpy(own_runtime: deep_jit.Runtime, scale_source: str) -> None:
    kernel = own_runtime.compile("scale", scale_source, optimize_level="3")
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    out = np.full(1001, 77, np.float32)
    kernel[(8, 1), 128](out, x, 1000)
    assert np.array_equal(out[:1000], 2 * x)
    assert out[1000] == 77


def test_constructor(cache_dir: Path) -> None:
    jit = deep_jit.Runtime(env_prefix="OWN")
    assert jit.backend == "host"
    assert repr(jit) == "<deep_jit.Runtime 'host' with env_prefix 'OWN'>"
    with pytest.raises(ValueError, match="no backend 'none'; there is: cuda, host"):
        deep_jit.Runtime("none", env_prefix="OWN")
    with pytest.raises(TypeError, match="env_prefix"):
        deep_jit.Runtime("host")  # type: ignore[call-arg]
    for prefix in ("", "DJ"):
        with pytest.raises(deep_jit.DeepJITError, match="prefix"):
            deep_jit.Runtime("host", env_prefix=prefix)
    with pytest.raises(deep_jit.DeepJITError, match="must be absolute"):
        deep_jit.Runtime("host", env_prefix="OWN", include_dirs=[Path("relative")])
    for one in ("/opt", Path("/opt")):
        with pytest.raises(TypeError, match="sequence of paths"):
            deep_jit.Runtime("host", env_prefix="OWN", include_dirs=one)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="cache_dirs must be a sequence of paths"):
            deep_jit.Runtime("host", env_prefix="OWN", cache_dirs=one)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dependency_mode must be 'tracked' or 'verified'"):
        deep_jit.Runtime("host", env_prefix="OWN", dependency_mode="checked")
    assert not cache_dir.exists()


def test_an_entry_and_its_metadata(own_runtime: deep_jit.Runtime, cache_dir: Path) -> None:
    path = own_runtime.compile_without_load("tag", _ANSWER, extra_cxx_flags=["-DANSWER=1"])
    key = own_runtime.cache_key(_ANSWER, extra_cxx_flags=["-DANSWER=1"])
    assert path == cache_dir / "cache" / f"tag.{key}"
    assert {"kernel.cc", "kernel.so", "meta.json", ".committed"} <= set(os.listdir(path))
    options = json.loads((path / "meta.json").read_text())["compiler_options"]
    assert options["optimize_level"] == "3"
    assert options["extra_cxx_flags"] == ["-DANSWER=1"]
    info = own_runtime.cache_info()
    assert isinstance(info, deep_jit.CacheInfo)
    assert (info.published, info.hits) == (1, 0)
    assert own_runtime.compile_without_load("tag", _ANSWER, extra_cxx_flags=["-DANSWER=1"]) == path
    assert own_runtime.cache_info().hits == 1


def test_memory_and_disk(own_runtime: deep_jit.Runtime) -> None:
    flags = ["-DANSWER=2"]
    kernel = own_runtime.compile("answer", _ANSWER, extra_cxx_flags=flags)
    counts = own_runtime.cache_info()
    assert own_runtime.compile("answer", _ANSWER, extra_cxx_flags=flags) == kernel
    assert own_runtime.cache_info() == counts
    second = deep_jit.Runtime("host", env_prefix="OWN")
    assert second.cache_info().hits == 0
    again = second.compile("answer", _ANSWER, extra_cxx_flags=flags)
    assert (second.cache_info().hits, second.cache_info().published) == (1, 0)
    assert again != kernel
    assert _run(kernel) == _run(again) == 2


def test_options_reach_the_compiler_and_the_key(own_runtime: deep_jit.Runtime) -> None:
    source = "__global__ void answer(int* out) { *out = ANSWER + __OPTIMIZE__; }"
    variants: list[dict[str, Any]] = [
        {"extra_cxx_flags": ["-DANSWER=1"]},
        {"extra_cxx_flags": ("-DANSWER=2",)},
        {"extra_cxx_flags": ["-DANSWER=1"], "optimize_level": "1"},
        {"extra_cxx_flags": ["-DANSWER=1"], "optimize_level": 2},
        {"extra_cxx_flags": ["-DANSWER=1"], "debug_info": True},
        {"cxx_flags": ["-std=c++17", "-fPIC", "-DANSWER=40"]},
    ]
    keys = {own_runtime.cache_key(source, **options) for options in variants}
    assert len(keys) == len(variants)
    assert all(len(key) == 32 and set(key) <= set("0123456789abcdef") for key in keys)
    assert [_run(own_runtime.compile("answer", source, **options)) for options in variants] == [
        2,
        3,
        2,
        2,
        2,
        41,
    ]
    same = own_runtime.cache_key(source, optimize_level=2, extra_cxx_flags=["-DANSWER=1"])
    assert same == own_runtime.cache_key(source, optimize_level="2", extra_cxx_flags=["-DANSWER=1"])
    default = own_runtime.cache_key(source)
    assert default == own_runtime.cache_key(source, optimize_level="3", debug_info=False)


def test_wrong_sources(own_runtime: deep_jit.Runtime, cache_dir: Path) -> None:
    with pytest.raises(TypeError, match="source must be str, not bytes"):
        own_runtime.compile("x", b"source")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name must be str, not int: 1"):
        own_runtime.compile(1, _ANSWER)  # type: ignore[arg-type]
    assert not cache_dir.exists()


@pytest.mark.parametrize("name", ["", "a/b", "..", "a-b"])
def test_bad_names(own_runtime: deep_jit.Runtime, name: str) -> None:
    with pytest.raises(
        deep_jit.DeepJITError, match="must contain only letters, digits, or underscores"
    ):
        own_runtime.compile(name, "__global__ void x() {}")


@pytest.mark.parametrize("source", ["int x;", "__global__ void a() {}\n__global__ void b() {}"])
def test_not_exactly_one_kernel(own_runtime: deep_jit.Runtime, source: str) -> None:
    with pytest.raises(deep_jit.DeepJITError, match="expected exactly one kernel"):
        own_runtime.compile("x", source)


def test_explain_key_names_what_differs(own_runtime: deep_jit.Runtime) -> None:
    one = own_runtime.explain_key(_ANSWER, extra_cxx_flags=["-DANSWER=1"]).splitlines()
    two = own_runtime.explain_key(_ANSWER, extra_cxx_flags=["-DANSWER=2"]).splitlines()
    assert len(one) == len(two) > 5
    (difference,) = [line for line in zip(one, two, strict=True) if line[0] != line[1]]
    assert "-DANSWER=1" in difference[0]
    assert "-DANSWER=2" in difference[1]


def test_extra_signature_changes_the_key(cache_dir: Path) -> None:
    keys = {
        deep_jit.Runtime("host", env_prefix="OWN", extra_signature=signature).cache_key(_ANSWER)
        for signature in ("", "a", "b", "\N{SNOWMAN}")
    }
    assert len(keys) == 4


def test_tracked_headers(cache_dir: Path, tmp_path: Path) -> None:
    source = "#include <own/answer.hpp>\n__global__ void answer(int* out) { *out = kAnswer; }"

    def make(place: str, answer: int) -> deep_jit.Runtime:
        directory = tmp_path / place / "own"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        (directory / "answer.hpp").write_text(f"constexpr int kAnswer = {answer};")
        return deep_jit.Runtime(
            "host", env_prefix="OWN", include_dirs=[tmp_path / place], include_prefixes=["own/"]
        )

    first = make("a", 1)
    assert _run(first.compile("answer", source)) == 1
    # An edited header, same size: another kernel.
    edited = make("a", 2)
    assert _run(edited.compile("answer", source)) == 2
    assert edited.cache_info().published == 1
    # Moved elsewhere: the same entry.
    moved = make("with blank and \N{SNOWMAN}", 1)
    assert _run(moved.compile("answer", source)) == 1
    assert (moved.cache_info().hits, moved.cache_info().published) == (1, 0)
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(deep_jit.DeepJITError, match="failed to open"):
        deep_jit.Runtime(
            "host", env_prefix="OWN", include_dirs=[tmp_path / "a"], include_prefixes=["own/"]
        ).cache_key(source)


@pytest.mark.parametrize("mode, expected", [("tracked", [1, 1, 2]), ("verified", [1, 2, 2])])
def test_an_untracked_header_that_changes(
    cache_dir: Path, tmp_path: Path, mode: str, expected: list[int]
) -> None:
    """Only verified kernels notice headers that `include_prefixes` does not name."""

    def run(answer: int, include: str = "<answer.hpp>") -> int:
        (tmp_path / "answer.hpp").write_text(f"constexpr int kAnswer = {answer};")
        jit = deep_jit.Runtime(
            "host",
            env_prefix="OWN",
            include_dirs=[tmp_path],
            include_prefixes=["other/"],
            dependency_mode=mode,
        )
        source = f"#include {include}\n__global__ void answer(int* out) {{ *out = kAnswer; }}"
        return _run(jit.compile("answer", source))

    seen = [run(1), run(2)]
    (path,) = (cache_dir / "cache").iterdir()
    shutil.rmtree(path)
    assert [*seen, run(2)] == expected
    if mode == "verified":
        assert [run(3, '"answer.hpp"'), run(4, '"answer.hpp"')] == [3, 4]
    else:
        with pytest.raises(deep_jit.DeepJITError, match="non-standard include"):
            run(3, '"answer.hpp"')


def test_same_name_new_source_gives_the_new_kernel(own_runtime: deep_jit.Runtime) -> None:
    one = own_runtime.compile("k", _ANSWER.replace("ANSWER", "1"))
    two = own_runtime.compile("k", _ANSWER.replace("ANSWER", "2"))
    assert (_run(one), _run(two)) == (1, 2)


@pytest.mark.parametrize(
    "folder",
    ["\N{CJK UNIFIED IDEOGRAPH-7F13}-\N{LATIN SMALL LETTER E WITH ACUTE}", "a b;$(c)'\"", "\udcff"],
)
def test_unusual_cache_paths(
    tmp_path: Path, run_python: Callable[..., str], folder: str, monkeypatch: Any
) -> None:
    code = """
import os, sys
import deep_jit
jit = deep_jit.Runtime("host", env_prefix="OWN")
path = jit.compile_without_load("x", "__global__ void x() {}")
jit.compile("x", "__global__ void x() {}")[1, 1]()
(path / "meta.json").read_text(encoding="utf-8")
print(os.fsencode(path.parent.parent) == os.environb[b"OWN_JIT_CACHE_DIR"])
"""
    root = tmp_path / folder
    monkeypatch.setenv("OWN_JIT_CACHE_DIR", str(root))
    monkeypatch.setenv("LC_ALL", "C")
    assert run_python(code) == "True\n"


def test_the_environment_is_read_at_first_use(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jit = deep_jit.Runtime("host", env_prefix="OWN")
    later = tmp_path / "later"
    monkeypatch.setenv("OWN_JIT_CACHE_DIR", str(later))
    path = jit.compile_without_load("x", "__global__ void x() {}")
    assert path.is_relative_to(later)
    assert not cache_dir.exists()


def test_cache_dirs_are_used_instead_of_the_environment(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    first, second = tmp_path / "first", tmp_path / "second"
    source = "__global__ void x() {}"
    # Every way to write the folder; colons are no separators here.
    for folders in ([first], (str(first), second), [tmp_path / "a:b"]):
        jit = deep_jit.Runtime("host", env_prefix="OWN", cache_dirs=folders)
        assert jit.compile_without_load("x", source).is_relative_to(folders[0])
    assert not second.exists()
    # The second is looked into, the first written to.
    other = deep_jit.Runtime("host", env_prefix="OWN", cache_dirs=[second, first])
    assert other.compile_without_load("x", source).is_relative_to(first)
    assert other.compile_without_load("y", source).is_relative_to(second)
    assert not cache_dir.exists()
    # None given: the environment.
    default = deep_jit.Runtime("host", env_prefix="OWN", cache_dirs=[])
    assert default.compile_without_load("x", source).is_relative_to(cache_dir)
    assert default.cache_key(source) == jit.cache_key(source)
    with pytest.raises(deep_jit.DeepJITError, match="cache directory must be absolute, but is `r`"):
        deep_jit.Runtime("host", env_prefix="OWN", cache_dirs=["r"])


def test_damage_is_healed(own_runtime: deep_jit.Runtime, cache_dir: Path) -> None:
    flags = ["-DANSWER=5"]
    path = own_runtime.compile_without_load("answer", _ANSWER, extra_cxx_flags=flags)
    library = path / "kernel.so"
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    library.write_bytes(data)
    fresh = deep_jit.Runtime("host", env_prefix="OWN")
    assert _run(fresh.compile("answer", _ANSWER, extra_cxx_flags=flags)) == 5
    info = fresh.cache_info()
    assert (info.hits, info.healed, info.published) == (0, 1, 0)
    assert info.damaged >= 1
