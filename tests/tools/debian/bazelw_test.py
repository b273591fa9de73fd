# SPDX-License-Identifier: MIT
"""What bazelw decides and does, with stand-ins for the commands that it calls."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest

_REPOSITORY = pathlib.Path(os.environ["RUNFILES_DIR"], os.environ["TEST_WORKSPACE"])
# What the scripts need of a machine besides the commands that a test stands in for.
_PLAIN = (
    "awk bash cat cp cut dirname env flock grep id mkdir mv readlink rm sed sha256sum sort "
    "tail tar touch xz"
).split()


class Machine:
    """A PATH of links and stand-ins, and a home, in a temporary folder."""

    def __init__(self, folder):
        self.bin = folder / "bin"
        self.home = folder / "home"
        self.calls = folder / "calls"
        self.bin.mkdir()
        self.home.mkdir()
        for name in _PLAIN:
            found = shutil.which(name)
            if found:
                (self.bin / name).symlink_to(found)

    def command(self, name, script):
        """Puts a stand-in on PATH; each call is noted."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        note = f'echo "{name} $*" >> {self.calls}\n'
        path.write_text(f"#!{shutil.which('bash')}\n{note}{script}\n")
        path.chmod(0o755)

    def debian(self):
        """Stands in for a Debian machine on which everything works."""
        self.command(
            "apt-get", 'echo "http://127.0.0.1/debian-security/"; echo "http://127.0.0.1/debian/"'
        )
        self.command("dpkg", "")
        self.command("apt-config", "")
        self.command("id", "echo 0")
        self.command("wget", "")
        self.command("gpgv", "")
        self.command("df", 'echo header; echo "fs 9 9 99999999 1% /"')
        self.command("unshare", 'shift 2; exec "$@"')
        self.command("debootstrap", 'mkdir -p "$3/etc/apt/apt.conf.d"')
        self.command(
            "bwrap", 'if [[ $* == *bazel* && $* != *bazel-bootstrap* ]]; then echo "ran: $*"; fi'
        )

    def start(self, *arguments):
        environment = {"PATH": str(self.bin), "HOME": str(self.home)}
        return subprocess.Popen(
            [self.bin / "bash", _REPOSITORY / "bazelw", *arguments],
            env=environment,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def called(self, name):
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line for line in lines if line.split()[0] == name]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_bazelisk_from_path_comes_first_and_gets_the_arguments(machine):
    machine.command("bazelisk", 'printf "[%s]" "$@"; exit 7')
    machine.command("bazel", "echo wrong")
    assert machine.run("test", "//a b", "--x=$(y)") == (7, "[test][//a b][--x=$(y)]", "")


def test_bazel_from_path_is_used_and_named(machine):
    machine.command("bazel", 'echo "bazel 7.7.1"')
    code, out, _ = machine.run("--version")
    assert code == 0
    assert out.splitlines() == [f"bazelw: bazel from PATH: {machine.bin}/bazel", "bazel 7.7.1"]


def test_debian_profile_is_added_for_debians_bazel():
    if not os.path.isdir("/usr/share/bazel/rules/python"):
        pytest.skip("Debian's Bazel is not installed on this machine")
    rc = _REPOSITORY / "tools/debian/use_debian.bazelrc"
    assert "common --config=debian" in rc.read_text().splitlines()
    script = (_REPOSITORY / "bazelw").read_text()
    probe = script[script.index("is_debian_bazel()") : script.index("for name in")]
    result = subprocess.run(["bash", "-c", probe + "is_debian_bazel /usr/bin/bazel"], check=False)
    assert result.returncode == 0


def test_not_a_debian_machine(machine):
    code, out, err = machine.run("info")
    assert (code, out) == (1, "")
    assert "not a Debian-like machine (no apt-get)" in err and "install Bazelisk" in err


def test_not_root(machine):
    machine.debian()
    machine.command("id", "echo 1000")
    code, _, err = machine.run("info")
    assert code == 1
    assert "needs root (uid here: 1000)" in err and "install Bazelisk" in err


def test_a_missing_tool_is_named(machine):
    machine.debian()
    (machine.bin / "gpgv").unlink()
    code, _, err = machine.run("info")
    assert code == 1 and "'gpgv' is needed" in err


def test_no_space(machine):
    machine.debian()
    machine.command("df", 'echo header; echo "fs 9 9 1048576 1% /"')
    code, _, err = machine.run("info")
    assert code == 1
    assert (
        "has 1024 MiB free; the Debian root needs 4096 MiB" in err and "DEEP_JIT_CACHE_HOME" in err
    )
    assert not machine.called("debootstrap")


def test_no_debian_archive_in_apts_configuration(machine):
    machine.debian()
    machine.command("apt-get", 'echo "http://127.0.0.1/other/"')
    code, _, err = machine.run("info")
    assert code == 1 and "names no Debian archive" in err and "DEEP_JIT_DEBIAN_MIRROR" in err


def test_root_is_made_once_from_apts_mirror_and_entered(machine):
    machine.debian()
    code, out, err = machine.run("test", "//x")
    assert code == 0, err
    assert "1/2" in err and "2/2" in err and "ready after" in err
    (debootstrap,) = machine.called("debootstrap")
    assert debootstrap.endswith("http://127.0.0.1/debian/")
    (ran,) = [line for line in out.splitlines() if line.startswith("ran: ")]
    assert f"--bind {machine.home} {machine.home}" in ran
    assert ran.endswith("test //x") and "use_debian.bazelrc" in ran and "deep_jit.mounts=" in ran
    code, out, err = machine.run("test", "//x")
    assert (code, err) == (0, "") and out.startswith("ran: ")
    assert len(machine.called("debootstrap")) == 1


def test_a_failed_install_shows_the_log_and_the_next_run_starts_over(machine):
    machine.debian()
    machine.command("bwrap", "echo E: no such package; exit 100")
    code, _, err = machine.run("info")
    assert code == 1
    assert "E: no such package" in err and "installing Bazel into the Debian root failed" in err
    machine.debian()
    code, _, err = machine.run("info")
    assert code == 0 and "1/2" in err
    assert len(machine.called("debootstrap")) == 2


def test_a_run_that_was_killed_half_way_is_taken_up(machine):
    machine.debian()
    # The second stage kills the whole run, as a closed terminal would.
    machine.command("bwrap", "kill -KILL -- -$(cut -d' ' -f5 /proc/$$/stat)")
    process = machine.start("info")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    machine.debian()
    code, _, err = machine.run("info")
    assert code == 0, err
    assert "1/2" not in err and "2/2" in err
    assert len(machine.called("debootstrap")) == 1


def test_two_at_once_make_one_root(machine, tmp_path):
    machine.debian()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # The first one holds the lock until the second is known to wait for it.
    machine.command("debootstrap", f'mkdir -p "$3/etc/apt/apt.conf.d"; read -r _ < {gate}')
    first = machine.start("info")
    opened = os.open(gate, os.O_WRONLY)
    second = machine.start("info")
    assert "waiting for it" in second.stderr.readline()
    os.write(opened, b"go\n")
    os.close(opened)
    for process in (first, second):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out.startswith("ran: ")
    assert len(machine.called("debootstrap")) == 1
