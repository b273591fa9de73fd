# SPDX-License-Identifier: MIT
"""The ratios that the CUDA benchmarks report, and what becomes of figures that are missing."""

import json
import sys

import cuda_report


def case(us):
    return {"us": us, "us_10": us - 0.5, "us_90": us + 0.5, "n": 101}


def parts(**python):
    cpp = {
        "launch: cuLaunchKernelEx": case(4.0),
        "launch: C++": case(4.2),
        "memory hit and launch, 20 kB: C++": case(7.0),
        "runtime: C++": case(2900.0),
    }
    return {
        "cpp": {"cases": cpp, "missing": {"first call: nvrtc, C++": "no NVRTC"}},
        "python": {"cases": python, "missing": {}},
    }


def lines_of(results):
    return {line[2:50].strip(): line[50:].strip() for line in cuda_report.report(results)}


def test_ratios_and_verdicts():
    lines = lines_of(parts())
    assert lines["C++ launch / driver"] == "1.05 x   at most 1.1 x: met"
    assert lines["C++ memory hit and launch, 20 kB / driver"] == "1.75 x   at most 1.5 x: MISSED"
    assert lines["C++ runtime object"] == "2900.00 us  at most 3000 us: met"
    assert lines["launch: C++"] == "4.20 us   (3.70 to 4.70, 101 samples)"


def test_python_is_compared_with_what_ran_beside_it():
    cases = {
        "launch: deep_jit, torch tensor": case(5.0),
        "launch: CuPy RawKernel": case(5.5),
        "launch: cuLaunchKernelEx": case(3.0),  # in Python's process
    }
    lines = lines_of(parts(**cases))
    assert lines["Python launch / CuPy RawKernel"] == "0.91 x   at most 0.9 x: MISSED"
    assert lines["Python launch / driver"] == "1.67 x   at most 1.35 x: MISSED"


def test_what_is_missing_is_named():
    lines = lines_of(parts())
    assert lines["first call: nvrtc, C++"] == "missing: no NVRTC"
    assert lines["C++ first call, NVRTC / nvcc"] == "not measured: see what is missing above"


def test_a_part_that_did_not_run(tmp_path, capsys, monkeypatch):
    cpp, merged = tmp_path / "cpp.json", tmp_path / "bench.json"
    cpp.write_text(json.dumps(parts()["cpp"]))
    command = ["cuda_report", str(cpp), str(tmp_path / "python.json"), "--json", str(merged)]
    monkeypatch.setattr(sys, "argv", command)
    cuda_report.main()
    assert "missing: there is no " in capsys.readouterr().out
    ratios = json.loads(merged.read_text())["ratios"]
    assert ratios["C++ launch / driver"] == 4.2 / 4.0
    assert ratios["Python launch / driver"] is None
