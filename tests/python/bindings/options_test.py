# SPDX-License-Identifier: MIT
"""Options by name, from Python to the compiler (python/bindings/options.h, _options.py)."""

import array
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deep_jit
import pytest
from deep_jit import _core

_ANSWER = "__global__ void answer(int* out) { *out = ANSWER; }"


def _calls(jit: deep_jit.Runtime) -> list[tuple[str, Callable[..., Any]]]:
    """Every way to give options, with the name that errors show."""
    return [
        ("compile", lambda **options: jit.compile("x", _ANSWER, **options)),
        (
            "compile_without_load",
            lambda **options: jit.compile_without_load("x", _ANSWER, **options),
        ),
        ("cache_key", lambda **options: jit.cache_key(_ANSWER, **options)),
        ("explain_key", lambda **options: jit.explain_key(_ANSWER, **options)),
        ("compile", lambda **options: jit.compile_many([("x", _ANSWER, options)])),
    ]


def _meta(entry: Path) -> dict[str, Any]:
    return json.loads((entry / "meta.json").read_text())


def test_the_typed_dict_names_what_the_backend_has(own_runtime: deep_jit.Runtime) -> None:
    with pytest.raises(TypeError) as raised:
        own_runtime.compile("x", _ANSWER, nonsense=1)  # type: ignore[call-arg]
    names = str(raised.value).partition("the options are: ")[2].split(", ")
    assert names == list(deep_jit.HostOptions.__annotations__)
    entry = own_runtime.compile_without_load("x", "__global__ void x() {}")
    assert list(_meta(entry)["compiler_options"]) == names


def test_values_of_each_type_reach_the_compiler(
    own_runtime: deep_jit.Runtime, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "optimize_level": 1,
        "debug_info": True,
        "sanitize": "undefined",
        "dump_asm": False,
        "cxx_flags": ("-std=c++17", "-fPIC"),
        "extra_cxx_flags": ["-DANSWER=6", '-DTEXT="\N{SNOWMAN} \'$x"'],
        "post_hook": "",
    }
    explained = own_runtime.explain_key(_ANSWER, **options)
    flags = [line.partition(" ")[2] for line in explained.splitlines() if line.startswith("flag")]
    text = "\n".join(flags)
    places = [
        text.index(flag)
        for flag in (
            "-O1",
            "-g",
            "-fsanitize=undefined",
            "-std=c++17",
            "-fPIC",
            "-DANSWER=6",
            '-DTEXT="\N{SNOWMAN} \'$x"',
        )
    ]
    assert places == sorted(places)
    del options["sanitize"]  # not every compiler has the library
    kernel = own_runtime.compile("answer", _ANSWER, **options)
    out = array.array("i", [0])
    kernel[1, 1](out)
    assert out[0] == 6
    found = _meta(own_runtime.compile_without_load("answer", _ANSWER, **options))
    assert found["compiler_options"] == options | {
        "optimize_level": "1",
        "sanitize": None,
        "cxx_flags": list(options["cxx_flags"]),
    }


def test_none_is_as_good_as_absent(own_runtime: deep_jit.Runtime) -> None:
    unset = dict.fromkeys(deep_jit.HostOptions.__annotations__)
    assert own_runtime.cache_key(_ANSWER, **unset) == own_runtime.cache_key(_ANSWER)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"unknown": 1}, TypeError, "{}() got an unexpected keyword argument 'unknown'; the opt"),
        (
            {"optimize_level": 1.5},
            TypeError,
            "optimize_level must be str, int or None, not float: 1",
        ),
        ({"optimize_level": True}, TypeError, "optimize_level must be str, int or None, not bool"),
        ({"optimize_level": 2**40}, OverflowError, "optimize_level must fit into 32 bits"),
        ({"debug_info": 1}, TypeError, "debug_info must be True, False or None, not int: 1"),
        ({"sanitize": b"x"}, TypeError, "sanitize must be str, int or None, not bytes: b'x'"),
        (
            {"cxx_flags": "-O3"},
            TypeError,
            "cxx_flags must be a sequence of str, not one str: '-O3'",
        ),
        ({"cxx_flags": 3}, TypeError, "cxx_flags must be a sequence of str, not int: 3"),
        (
            {"extra_cxx_flags": [b"-O3"]},
            TypeError,
            "extra_cxx_flags must be str, not bytes: b'-O3'",
        ),
        ({"extra_cxx_flags": ["-D\0"]}, ValueError, "extra_cxx_flags must not contain a NUL"),
        ({"post_hook": Path("x")}, TypeError, "post_hook must be str, int or None, not PosixPath"),
    ],
)
def test_wrong_options(
    own_runtime: deep_jit.Runtime,
    cache_dir: Path,
    options: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    for name, call in _calls(own_runtime):
        with pytest.raises(error) as raised:
            call(**options)
        assert text.format(name) in str(raised.value)
    assert str(raised.value).startswith("kernels[0]: ")  # compile_many was the last
    assert not cache_dir.exists()


def test_a_sanitizer_that_is_none(own_runtime: deep_jit.Runtime) -> None:
    for _, call in _calls(own_runtime):
        with pytest.raises(
            deep_jit.DeepJITError, match='must be "address", "thread" or "undefined"'
        ):
            call(sanitize="adress")


def test_the_assembly_is_kept_when_asked_for(own_runtime: deep_jit.Runtime) -> None:
    source = "__global__ void unmistakable_name(int* out) { *out = 1; }"
    plain = own_runtime.compile_without_load("plain", source)
    assert not (plain / "kernel.s").exists()
    dumped = own_runtime.compile_without_load("dumped", source, dump_asm=True)
    assert "unmistakable_name" in (dumped / "kernel.s").read_text()
    assert plain.suffix == dumped.suffix  # the key


_HOOK = """
import pathlib, sys
artifact = pathlib.Path(sys.argv[1])
assert artifact.is_absolute() and artifact.parent == pathlib.Path.cwd(), artifact
(artifact.parent / "seen.txt").write_text(f"{artifact.name} {len(sys.argv)}")
if (pathlib.Path(__file__).parent / "fail").exists():
    print("the hook says no")
    sys.exit(3)
"""


def test_a_post_hook_runs_on_each_new_artifact(cache_dir: Path, tmp_path: Path) -> None:
    hooks = tmp_path / "library" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "check it.py").write_text(_HOOK)
    jit = deep_jit.Runtime("host", env_prefix="OWN", library_root=tmp_path / "library")
    flags = ["-DANSWER=1"]
    hook = "hooks/check it.py"
    entry = jit.compile_without_load("k", _ANSWER, post_hook=hook, extra_cxx_flags=flags)
    assert (entry / "seen.txt").read_text() == "kernel.so 2"
    assert jit.cache_key(_ANSWER, post_hook="", extra_cxx_flags=flags) == jit.cache_key(
        _ANSWER, extra_cxx_flags=flags
    )
    # Its content is part of the key, and what it says is in the error.
    (hooks / "check it.py").write_text(_HOOK + "#")
    (hooks / "fail").touch()
    with pytest.raises(deep_jit.CompileError, match=r"check it\.py") as raised:
        jit.compile("k", _ANSWER, post_hook=hook, extra_cxx_flags=flags)
    assert "the hook says no" in raised.value.log
    assert raised.value.command[0] == sys.executable
    assert len(list((cache_dir / "cache").iterdir())) == 1
    with pytest.raises(deep_jit.DeepJITError, match="failed to open for reading"):
        jit.compile("k", _ANSWER, post_hook="hooks/missing.py", extra_cxx_flags=flags)


def test_a_sanitized_kernel_is_refused_where_it_cannot_run(
    own_runtime: deep_jit.Runtime,
    cache_dir: Path,
    tmp_path: Path,
    compiler_command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Builds what it should, but for the flag, which not every compiler has the library for.
    stripped = tmp_path / "stripped_c++"
    stripped.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"command = {compiler_command!r} + [a for a in sys.argv[1:] if 'sanitize' not in a]\n"
        "os.execv(command[0], command)\n"
    )
    stripped.chmod(0o755)
    monkeypatch.setenv("OWN_JIT_CXX_COMPILER", str(stripped))
    source = "__global__ void k() {}"
    entry = own_runtime.compile_without_load("k", source, sanitize="address")
    with pytest.raises(deep_jit.DeepJITError, match=r"-fsanitize=address.*LD_PRELOAD"):
        own_runtime.compile("k", source, sanitize="address")
    assert list((cache_dir / "cache").iterdir()) == [entry]
    own_runtime.compile("k", source)[1, 1]()


def test_no_reference_is_lost_or_kept(
    own_runtime: deep_jit.Runtime, find_leaks: Callable[..., list[object]]
) -> None:
    flags, level, core = ["-DANSWER=\N{SNOWMAN}"], "1", own_runtime._core
    options: dict[str, Any] = {"extra_cxx_flags": flags, "optimize_level": level}
    own_runtime.cache_key(_ANSWER)

    def exercise() -> None:
        core.cache_key(_ANSWER, options)
        refused = 0
        for wrong in ({"extra_cxx_flags": [flags]}, {flags[0]: level}, {"debug_info": flags}):
            try:
                core.compile_many([("x", _ANSWER, wrong)], 1)
            except TypeError:
                refused += 1
        assert refused == 3

    assert not find_leaks(exercise, [flags, flags[0], level, options, _core.HostRuntime])
