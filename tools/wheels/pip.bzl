"""How a repository rule gets wheels: pip, by name, version and hash, from where the user's pip gets them."""

# pip does not expand manylinux tags: each one that a wheel may carry has to be named.
_MANYLINUX = [
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_17",
    "manylinux2014",
    "manylinux_2_12",
    "manylinux2010",
    "manylinux_2_5",
    "manylinux1",
]

def machine(rctx):
    """The machine's name in wheel tags: x86_64 or aarch64."""
    arch = rctx.os.arch
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)

def _python_with_pip(rctx):
    tried = []
    for name in ["python3", "python"]:
        python = rctx.which(name)
        if python and rctx.execute([python, "-m", "pip", "--version"]).return_code == 0:
            return python
        tried.append("{} ({})".format(name, "no pip in {}".format(python) if python else "not on PATH"))
    fail("A Python with pip is needed to fetch wheels. Tried: {}. Install pip for one of them.".format(", ".join(tried)))

def pip_install(rctx, wheels, target, python = "any", binary_machine = None):
    """Installs locked wheels into a folder of the repository; returns pip's result.

    Args:
        rctx: the repository context.
        wheels: the lock's list of {name, version, sha256}.
        target: the folder.
        python: the Python version the wheels are for, or "any".
        binary_machine: the machine the wheels are for; default this one.
    Returns:
        pip's exec_result; not checked.
    """
    rctx.file("requirements.txt", "".join([
        "{}=={} {}\n".format(wheel["name"], wheel["version"], " ".join(["--hash=sha256:" + sha for sha in wheel["sha256"]]))
        for wheel in wheels
    ]))
    command = [_python_with_pip(rctx), "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    command += ["--disable-pip-version-check", "--no-warn-script-location", "--root-user-action=ignore"]
    command += ["--require-hashes", "--only-binary=:all:", "--implementation=cp"]
    command += ["--platform={}_{}".format(tag, binary_machine or machine(rctx)) for tag in _MANYLINUX]
    command.append("--python-version=" + ("3.11" if python == "any" else python))
    command += ["--target=" + target, "--requirement=requirements.txt"]
    return rctx.execute(command, timeout = 1800)

def check(result, what):
    """Fails with pip's own words when pip failed."""
    if result.return_code != 0:
        fail("pip could not get {}:\n{}{}".format(what, result.stdout, result.stderr))
