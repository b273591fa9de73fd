# SPDX-License-Identifier: MIT
"""The GPU bundle on a machine without a GPU: what is in it, and what its runner says."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import archive
import pytest
import run

_BUNDLE = pathlib.Path(__file__).with_name("gpu_bundle.tar")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    with tarfile.open(_BUNDLE) as bundle:
        bundle.extractall(folder)
    return folder / "gpu_bundle"


def program(folder, script):
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_holds_what_is_needed():
    with tarfile.open(_BUNDLE) as bundle:
        names = set(bundle.getnames())
    for name in (
        "run.py",
        "python/deep_jit/__init__.py",
        "python/deep_jit/_core.abi3.so",
        "python/quickstart/quickstart.py",
        "runtime/include/deep_jit/runtime/runtime.hpp",
        "tests/cuda/gpu/gpu_tests",
        "tests/python/conftest.py",
        "tools/bench/cuda",
        "tools/bench/cuda_report.py",
    ):
        assert f"gpu_bundle/{name}" in names
    assert any(name.endswith("/site/_pytest/__init__.py") for name in names)


def test_is_small_and_has_no_trace_of_when_and_where():
    assert _BUNDLE.stat().st_size < 60_000_000
    with tarfile.open(_BUNDLE) as bundle:
        for entry in bundle:
            assert (entry.mtime, entry.uid, entry.gid, entry.uname) == (0, 0, 0, "")
            assert entry.isfile() and entry.mode in (0o644, 0o755)


def test_an_archive_depends_on_names_and_contents_only(tmp_path, monkeypatch):
    made = []
    for number, mtime in enumerate((0, 1_000_000_000)):
        folder = tmp_path / str(number) / "folder"
        folder.mkdir(parents=True)
        # In another order, at another time.
        for name in sorted(("a", "b"), reverse=bool(number)):
            (folder / name).write_text(name)
            os.utime(folder / name, (mtime, mtime))
        manifest, output = tmp_path / f"{number}.json", tmp_path / f"{number}.tar"
        manifest.write_text(json.dumps({"top/x": str(folder), "top/0": str(folder / "b")}))
        monkeypatch.setattr(sys, "argv", ["archive", str(manifest), str(output)])
        archive.main()
        made.append(output.read_bytes())
    assert made[0] == made[1]
    with tarfile.open(tmp_path / "0.tar") as tar:
        assert tar.getnames() == ["top/0", "top/x/a", "top/x/b"]


def test_programs_run_anywhere(unpacked):
    # By themselves: neither libraries of ours nor a newer libstdc++.
    if run.missing_gpu() is None:
        pytest.skip("this machine has a GPU")
    for name, words in (
        ("tests/cuda/gpu/gpu_tests", "there is no NVIDIA driver"),
        ("tools/bench/cuda", "(there is no NVIDIA driver|build it, or the bundle, with -c opt)"),
    ):
        result = subprocess.run(
            [unpacked / name], capture_output=True, text=True, check=False, env={"PATH": ""}
        )
        assert re.search(words, result.stdout + result.stderr)
        assert result.returncode == 1


def test_package_imports(unpacked):
    code = "import deep_jit; print(deep_jit.__file__, deep_jit.get_include())"
    result = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=run.environment("/usr") | {"PYTHONPATH": str(unpacked / "python")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.count(str(unpacked)) == 2


def test_without_a_gpu_everything_is_skipped_with_the_reason(unpacked):
    if run.missing_gpu() is None:
        pytest.skip("this machine has a GPU")
    result = subprocess.run(
        [sys.executable, unpacked / "run.py"], capture_output=True, text=True, check=False
    )
    lines = result.stdout.splitlines()
    assert lines[0].startswith("SKIP everything: no NVIDIA driver (libcuda.so.1: ")
    assert lines[-1] == "0 passed, 0 failed"
    assert result.returncode == 1, "nothing was tested"


_REPORT = """
for word in "$@"; do case $word in --gtest_output=xml:*) xml=${word#*xml:};; esac; done
cat > "$xml" <<END
<testsuites><testsuite name="T">
<testcase name="one" status="run" classname="T"/>
<testcase name="DISABLED_x" status="notrun" classname="T"/>
CASES
</testsuite></testsuites>
END
exit $CODE
"""
_BAD = """
<testcase name="two" status="run" classname="T"><failure message="it is 3&#x0A;not 4"/></testcase>
<testcase name="three" status="run" classname="T"><skipped message="old"/></testcase>
"""


def test_results_of_a_program(tmp_path, capsys):
    report = run.Report()
    script = "echo hello" + _REPORT.replace("CASES", _BAD)
    run.run_native(program(tmp_path, script), {"CODE": "1"}, report)
    assert report.finish() == 1
    assert capsys.readouterr().out.splitlines() == [
        "hello",
        "PASS program: one",
        "FAIL program: two: it is 3 not 4",
        "SKIP program: three: old",
        "1 skipped",
        "1 passed, 1 failed",
    ]


def test_a_program_that_dies_or_hangs_has_failed(tmp_path, capsys):
    report = run.Report()
    run.run_native(program(tmp_path, "kill -SEGV $$"), {}, report)
    assert "FAIL program: it ended with exit code -11" in capsys.readouterr().out
    run.run_native(program(tmp_path, "exec sleep 60"), {}, report, timeout=0.1)
    assert "FAIL program: it did not end within 0.1 s" in capsys.readouterr().out
    assert report.counts == {"PASS": 0, "FAIL": 2, "SKIP": 0}


def test_the_sanitizer_counts_as_a_test_of_its_own(tmp_path, capsys):
    sanitizer = tmp_path / "sanitizer"
    sanitizer.write_text('#!/bin/sh\ncase "$3" in --gtest_filter=-*) ;; *) exit 3;; esac\n"$@"\n')
    sanitizer.chmod(0o755)
    report = run.Report()
    test = program(tmp_path, _REPORT.replace("CASES", ""))
    run.run_native(test, {"CODE": "0"}, report, [sanitizer])
    assert report.counts == {"PASS": 2, "FAIL": 0, "SKIP": 0}
    run.run_native(test, {"CODE": "97"}, report, [sanitizer])
    assert report.counts == {"PASS": 3, "FAIL": 1, "SKIP": 0}
    refusing = program(tmp_path, "echo 'Error: Device not supported'; exit 1")
    run.run_native(refusing, {}, report, [sanitizer])
    assert report.counts["SKIP"] == 1 and "not support this device" in capsys.readouterr().out


def test_results_of_pytest(tmp_path, capsys):
    test = tmp_path / "cuda/gpu_sample.py"
    test.parent.mkdir()
    (tmp_path / "conftest.py").write_text("import pytest\n@pytest.fixture\ndef two(): return 2\n")
    test.write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(two): assert 1 == two\n"
        "def test_left_out(): pytest.skip('one GPU only')\n"
    )
    report = run.Report()
    run.run_pytest(tmp_path, [test], run.environment("/usr"), report)
    output = capsys.readouterr().out
    assert "PASS gpu_sample: test_good" in output
    assert "FAIL gpu_sample: test_bad: assert 1 == 2" in output
    assert "SKIP gpu_sample: test_left_out: one GPU only" in output
    assert report.counts == {"PASS": 1, "FAIL": 1, "SKIP": 1}


def test_a_toolkit_is_looked_for(tmp_path, monkeypatch):
    nvcc = tmp_path / "bin/nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert run.find_toolkit() == (tmp_path, "")
    monkeypatch.setenv("CUDA_HOME", "/no/such")
    monkeypatch.setenv("PATH", str(nvcc.parent))
    assert run.find_toolkit() == (tmp_path, "")


def test_only_selects_by_name():
    report = run.Report("tests")
    assert report.wants("gpu_tests") and not report.wants("gpu_stream")
