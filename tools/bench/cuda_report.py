# SPDX-License-Identifier: MIT
"""Puts the results of the CUDA benchmarks side by side, with the ratios that are wanted.

    cuda_report.py CPP.json PYTHON.json [--json FILE] [--plot FILE.png]

Ratios are of two figures of the same process, or of two kinds of process in the same run.
"""

import argparse
import json
import os
from importlib import import_module

# What, whose figure, beside whose, in the C++ or the Python part, at most.
_TARGETS = [
    ("C++ launch / driver", "cpp", "launch: C++", "launch: cuLaunchKernelEx", 1.10),
    (
        "C++ memory hit and launch, 80 bytes / driver",
        "cpp",
        "memory hit and launch, 80 bytes: C++",
        "launch: cuLaunchKernelEx",
        1.15,
    ),
    (
        "C++ memory hit and launch, 20 kB / driver",
        "cpp",
        "memory hit and launch, 20 kB: C++",
        "launch: cuLaunchKernelEx",
        1.5,
    ),
    (
        "C++ disk hit / driver's load of the file",
        "cpp",
        "first load: disk hit, C++",
        "first load: cuLibraryLoadFromFile",
        1.4,
    ),
    (
        "C++ first call, NVRTC / nvcc",
        "cpp",
        "first call: nvrtc, C++",
        "first call: nvcc, C++",
        0.25,
    ),
    (
        "Python launch / CuPy RawKernel",
        "python",
        "launch: deep_jit, torch tensor",
        "launch: CuPy RawKernel",
        0.90,
    ),
    (
        "Python launch / driver",
        "python",
        "launch: deep_jit, torch tensor",
        "launch: cuLaunchKernelEx",
        1.35,
    ),
    (
        "Python first call / cuda.core",
        "python",
        "first call: deep_jit, NVRTC",
        "first call: cuda.core",
        1.3,
    ),
]
_RUNTIME_LIMIT_US = 3000


def rate(parts):
    """Rows (what, figure or None, limit, unit) for all that is wanted."""
    for what, part, name, other, limit in _TARGETS:
        cases = parts.get(part, {}).get("cases", {})
        both = name in cases and other in cases
        yield what, cases[name]["us"] / cases[other]["us"] if both else None, limit, "x"
    made = parts.get("cpp", {}).get("cases", {}).get("runtime: C++")
    yield "C++ runtime object", made["us"] if made else None, _RUNTIME_LIMIT_US, "us"


def report(parts):
    """The lines of the table."""
    for part, result in parts.items():
        yield f"{part}:"
        for name, case in sorted(result["cases"].items()):
            spread = f"{case['us_10']:.2f} to {case['us_90']:.2f}"
            yield f"  {name:<48} {case['us']:>12.2f} us   ({spread}, {case['n']} samples)"
        for name, why in sorted(result["missing"].items()):
            yield f"  {name:<48} missing: {why}"
    yield "ratios:"
    for what, figure, limit, unit in rate(parts):
        if figure is None:
            yield f"  {what:<48} not measured: see what is missing above"
        else:
            verdict = "met" if figure <= limit else "MISSED"
            yield f"  {what:<48} {figure:>8.2f} {unit:<2}  at most {limit:g} {unit}: {verdict}"


def plot(parts, path):
    """A bar per launch; returns why there is none, if so."""
    try:
        import_module("matplotlib").use("Agg")
        pyplot = import_module("matplotlib.pyplot")
    except ImportError as error:
        return str(error)
    # One name may stand in both parts.
    bars = [
        (f"{name.removeprefix('launch: ')} [{part} part]", case["us"])
        for part, result in parts.items()
        for name, case in result["cases"].items()
        if name.startswith(("launch: ", "memory hit"))
    ]
    bars.sort(key=lambda bar: bar[1], reverse=True)
    figure, axes = pyplot.subplots(figsize=(9, 0.4 * len(bars) + 1.2), layout="constrained")
    axes.barh([name for name, _ in bars], [us for _, us in bars])
    axes.bar_label(axes.containers[0], fmt="%.1f", padding=3)
    axes.margins(x=0.12)  # Room for the labels.
    axes.set_xlabel("host time per launch, us: median of bursts of 200")
    figure.savefig(path, dpi=120)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cpp")
    parser.add_argument("python")
    parser.add_argument("--json")
    parser.add_argument("--plot")
    arguments = parser.parse_args()
    parts = {}
    for part in ("cpp", "python"):
        path = getattr(arguments, part)
        if not os.path.exists(path):
            parts[part] = {"cases": {}, "missing": {"everything": f"there is no {path}"}}
            continue
        with open(path, encoding="utf-8") as file:
            parts[part] = json.load(file)
    print("\n".join(report(parts)))
    if arguments.json:
        ratios = {what: figure for what, figure, _, _ in rate(parts)}
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({**parts, "ratios": ratios}, file, indent=2)
    if arguments.plot:
        why = plot(parts, arguments.plot)
        print(f"no plot: {why}" if why else f"plot: {arguments.plot}")


if __name__ == "__main__":
    main()
