# SPDX-License-Identifier: MIT
"""Runs the GPU tests and benchmarks of the bundle that this file lies in.

    python3 gpu_bundle/run.py [--only PATTERN] [--sanitizer] [--bench FOLDER]

Needs Python 3.10 or newer, an NVIDIA GPU and its driver, and a CUDA toolkit: CUDA_HOME, nvcc on
PATH, or /usr/local/cuda. Prints a line `PASS test`, `FAIL test: why` or `SKIP test: why` each, and
last `N passed, N failed`. The exit code is 0 when something passed and nothing failed.

Programs of tests/cuda/gpu print such lines themselves; files of tests/python/cuda/gpu are run by
the pytest of the bundle.
"""

import argparse
import ctypes
import fnmatch
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

_ROOT = pathlib.Path(__file__).resolve().parent
# What compute-sanitizer cannot follow: child processes, the end of a process, and two kernels at
# once, which it runs one after the other.
_WITHOUT = "ExitTest.*:*Fork*:*EightProcesses*:*WhileAKernelRuns"


class Report:
    """Counts, and prints, the results of tests."""

    def __init__(self, only="*"):
        self._only = only
        self.counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}

    def wants(self, name):
        return fnmatch.fnmatch(name, f"*{self._only}*")

    def add(self, verdict, name, why=""):
        self.counts[verdict] += 1
        print(f"{verdict} {name}{': ' + why if why else ''}", flush=True)

    def finish(self):
        if self.counts["SKIP"]:
            print(f"{self.counts['SKIP']} skipped")
        print(f"{self.counts['PASS']} passed, {self.counts['FAIL']} failed")
        return 0 if self.counts["PASS"] and not self.counts["FAIL"] else 1


# --- The machine ---


def missing_gpu():
    """Why no GPU can be used; None when one can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no NVIDIA driver ({error})"
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return f"the driver reports error {code}"
    return None if count.value else "the driver sees no device"


def find_toolkit():
    """The toolkit's folder, or None, and where it was looked for."""
    candidates = [("CUDA_HOME", os.environ.get("CUDA_HOME"))]
    nvcc = shutil.which("nvcc")
    # A wrapper script on PATH is no part of a toolkit.
    candidates.append(("PATH", nvcc and pathlib.Path(nvcc).resolve().parent.parent))
    candidates.append(("/usr/local/cuda", "/usr/local/cuda"))
    tried = []
    for origin, home in candidates:
        if home and os.access(os.path.join(home, "bin", "nvcc"), os.X_OK):
            return pathlib.Path(home), ""
        tried.append(f"{origin} ({home or 'not there'})")
    return None, "no CUDA toolkit with bin/nvcc; tried " + ", ".join(tried)


def environment(toolkit):
    """What tests and benchmarks run with."""
    paths = [_ROOT / "python", *_ROOT.glob("external/*pypi_*/site")]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    return {
        **os.environ,
        "CUDA_HOME": str(toolkit),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


# --- Tests ---


def add_results(xml, name, report):
    """Adds the test cases of a JUnit report, which googletest and pytest write."""
    cases = list(ElementTree.parse(xml).iter("testcase")) if xml.exists() else []
    for case in cases:
        if case.get("status") == "notrun":
            continue
        where = f"{name or case.get('classname', '').rpartition('.')[2]}: {case.get('name')}"
        skipped = case.find("skipped")
        broken = next((e for e in case if e.tag in ("failure", "error")), None)
        if broken is not None:
            report.add("FAIL", where, " ".join(broken.get("message", "").split()))
        elif skipped is not None:
            report.add("SKIP", where, " ".join(skipped.get("message", "").split()))
        else:
            report.add("PASS", where)


def run_native(program, env, report, prefix=(), timeout=300):
    """Runs a googletest program."""
    name = program.name
    command = [*map(str, prefix), str(program), "--gtest_brief=1"]
    if prefix:
        command.append(f"--gtest_filter=-{_WITHOUT}")
        name += " under compute-sanitizer"
    failed = report.counts["FAIL"]
    with tempfile.TemporaryDirectory() as folder:
        xml = pathlib.Path(folder, "report.xml")
        command.append(f"--gtest_output=xml:{xml}")
        try:
            result = subprocess.run(
                command,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                errors="replace",
                timeout=timeout,
                check=False,
            )
            output, code = result.stdout, result.returncode
        except subprocess.TimeoutExpired as error:
            output, code = (error.stdout or b"").decode(errors="replace"), None
        print(output, end="", flush=True)
        if prefix and "Device not supported" in output:
            report.add("SKIP", name, "compute-sanitizer does not support this device")
            return
        add_results(xml, name, report)
    if code is None:
        report.add("FAIL", name, f"it did not end within {timeout} s")
    elif code and report.counts["FAIL"] == failed:
        report.add("FAIL", name, f"it ended with exit code {code}")
    elif prefix and not code:
        report.add("PASS", name, "no error found")


def run_pytest(root, files, env, report):
    """Runs test files, with each conftest.py from the folder `root` down to theirs."""
    with tempfile.TemporaryDirectory() as folder:
        xml = pathlib.Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--rootdir={root}", "--import-mode=importlib", f"--junitxml={xml}"]
        result = subprocess.run(
            [*command, *map(str, files)],
            env={**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        add_results(xml, "", report)
    if result.returncode:
        print(result.stdout)
        if not report.counts["FAIL"]:
            report.add("FAIL", "pytest", f"it ended with exit code {result.returncode}")


def run_quickstart(env, report):
    """The README's main job on the GPU; it checks its own numbers."""
    command = [sys.executable, _ROOT / "python/quickstart/quickstart.py", "--backend=cuda"]
    code = subprocess.run(command, env=env, check=False).returncode
    report.add(*(("FAIL", "quickstart", f"exit code {code}") if code else ("PASS", "quickstart")))


def run_tests(arguments, toolkit, env, report):
    programs = [p for p in sorted(_ROOT.glob("tests/cuda/gpu/*")) if os.access(p, os.X_OK)]
    programs = [p for p in programs if p.is_file() and report.wants(p.name)]
    for program in programs:
        run_native(program, env, report)
    if report.wants("quickstart"):
        run_quickstart(env, report)
    root = _ROOT / "tests/python"
    files = [p for p in sorted(root.glob("cuda/gpu/*.py")) if p.name != "conftest.py"]
    files = [p for p in files if report.wants(p.stem)]
    if files:
        # From the top: a folder of tests called `cuda` must not hide NVIDIA's package of that name.
        run_pytest(_ROOT, files, env, report)
    if not arguments.sanitizer:
        return
    sanitizer = shutil.which("compute-sanitizer") or toolkit / "bin/compute-sanitizer"
    if not os.access(sanitizer, os.X_OK):
        report.add("SKIP", "compute-sanitizer", f"neither on PATH nor {sanitizer}")
        return
    # Calls that must fail are part of the tests; compilers are not looked at.
    flags = ["--tool=memcheck", "--report-api-errors=no", "--error-exitcode=97"]
    flags.append("--target-processes=application-only")
    for program in programs:
        run_native(program, env, report, [sanitizer, *flags])


# --- Benchmarks ---


def run_benchmarks(folder, env):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    bench = _ROOT / "tools/bench"
    cpp, python = folder / "cpp.json", folder / "python.json"
    bare = bench / "libbare_launch.so"
    report = ["--json", folder / "bench.json", "--plot", folder / "bench.png"]
    steps = [
        [bench / "cuda", "--json", cpp],
        [sys.executable, bench / "cuda_python_bench.py", "--bare", bare, "--json", python],
        [sys.executable, bench / "cuda_report.py", cpp, python, *report],
    ]
    status = 0
    for step in steps:
        status = subprocess.run([*map(str, step)], env=env, check=False).returncode or status
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="tests whose file's name has this in it")
    parser.add_argument("--sanitizer", action="store_true", help="also under compute-sanitizer")
    parser.add_argument("--bench", metavar="FOLDER", help="benchmarks instead; results go there")
    arguments = parser.parse_args()
    report = Report(arguments.only)
    toolkit, why = find_toolkit()
    why = missing_gpu() or why
    if why:
        report.add("SKIP", "everything", why)
        return report.finish()
    env = environment(toolkit)
    if arguments.bench:
        return run_benchmarks(arguments.bench, env)
    run_tests(arguments, toolkit, env, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
