# SPDX-License-Identifier: MIT
"""Makes wheels.lock.json anew from requirements.json.

    ./bazelw run //tools/wheels:lock [-- GROUP ...]

A group is one package with all that it needs. For each group, Python version and machine that the
project builds for (or those in "machines"), pip is asked what it would install (nothing is
installed); name, version and sha256 of each wheel go into the lock, and no address. A group without
"pythons" holds wheels that any Python can use; one whose "dependencies" are false holds its
requirements only, for what is no Python in them. pip evaluates environment markers with the
interpreter that runs it, so each Python version is asked by its own interpreter.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

_MACHINES = ("x86_64", "aarch64")
# pip does not expand manylinux tags: each one that a wheel may carry has to be named.
_MANYLINUX = (
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_17",
    "manylinux2014",
    "manylinux_2_12",
    "manylinux2010",
    "manylinux_2_5",
    "manylinux1",
)


def find_interpreter(python):
    """An interpreter of that version with pip: from PATH, else pyenv's."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    candidates = [shutil.which(f"python{python}")]
    candidates += sorted(pyenv.glob(f"versions/{python}.*/bin/python{python}"))
    for candidate in filter(None, candidates):
        probe = [candidate, "-m", "pip", "--version"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return candidate
    sys.exit(f"lock: no Python {python} with pip on PATH or in {pyenv}; install one")


def resolve(interpreter, python, machine, settings):
    """What pip would install: {name: (version, sha256)}."""
    platforms = [f"--platform={tag}_{machine}" for tag in _MANYLINUX]
    with tempfile.TemporaryDirectory() as scratch:
        report = pathlib.Path(scratch, "report.json")
        command = [
            interpreter,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            f"--report={report}",
            f"--target={scratch}/target",
            "--only-binary=:all:",
            "--implementation=cp",
            f"--python-version={python}",
            *platforms,
            *([] if settings.get("dependencies", True) else ["--no-deps"]),
            *settings["requirements"],
        ]
        subprocess.run(command, check=True)
        entries = json.loads(report.read_text())["install"]
    return {
        entry["metadata"]["name"]: (
            entry["metadata"]["version"].partition("+")[0],
            entry["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for entry in entries
    }


def merge(group, python, found):
    """One lock list from what each machine found; the same version is asked of each."""
    wheels = {}
    for machine, packages in found.items():
        for name, (version, sha256) in packages.items():
            wheel = wheels.setdefault(name, {"name": name, "version": version, "sha256": []})
            if wheel["version"] != version:
                sys.exit(
                    f"lock: {group} for Python {python}: {name} is {wheel['version']} on another "
                    f"machine but {version} on {machine}; pin it in requirements.json"
                )
            if sha256 not in wheel["sha256"]:
                wheel["sha256"].append(sha256)
    return [wheels[name] for name in sorted(wheels, key=str.lower)]


def main():
    folder = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."), "tools", "wheels")
    groups = json.loads((folder / "requirements.json").read_text())
    lock_file = folder / "wheels.lock.json"
    lock = json.loads(lock_file.read_text()) if lock_file.exists() else {}
    for group in sys.argv[1:] or groups:
        settings = groups[group]
        lock[group] = {}
        for python in settings.get("pythons", ["any"]):
            asked = "3.11" if python == "any" else python
            interpreter = find_interpreter(asked)
            print(f"{group} ({python})", flush=True)
            found = {
                machine: resolve(interpreter, asked, machine, settings)
                for machine in settings.get("machines", _MACHINES)
            }
            lock[group][python] = merge(group, python, found)
    lock = {group: lock[group] for group in sorted(lock) if group in groups}
    lock_file.write_text(json.dumps(lock, indent=2) + "\n")


if __name__ == "__main__":
    main()
