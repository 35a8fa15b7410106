"""Missing Debian packages are installed in one go, before anything else. apt-get is a stand-in that records its arguments."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts.commands import ROOT, packaged
from tests.scripts.minimal_root import PATH, PROGRAMS

RECORDING_APT = '#!/bin/sh\necho "$@" >>"$APT_LOG"\ncase "$*" in *" install "*) exit 9 ;; esac\n'


class Machine:
    """The programs of a minimal root, and what is asked of apt-get."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.log = folder / "bin", folder / "apt.log"
        self.bin.mkdir()
        for name in PROGRAMS - {"apt-get"}:
            program = shutil.which(name, path=PATH)
            assert program, f"`{name}` is in minimal-root.txt and not on this machine"
            (self.bin / name).symlink_to(program)
        (self.bin / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
        self.environment = {"PATH": str(self.bin), "HOME": str(folder), "APT_LOG": str(self.log)}
        self.environment |= {"KFJOB_VENV": str(folder / "venv"), "KFJOB_CLUSTER_STATE": str(folder / "state")}
        self.environment["KFJOB_CLUSTER_CACHE"] = str(folder / "cache")
        (folder / "cache" / "bin").mkdir(parents=True)
        (folder / "cache" / "bin" / ".operator").touch()  # as if built: the disk must only hold a cluster

    def add(self, name: str, script: str = "#!/bin/sh\n") -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o700)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def missing(*groups: str) -> dict[str, str]:
    """The programs that a minimal root lacks, and their packages."""
    return {name: package for name, package in packaged(*groups).items() if "/" not in name and name not in PROGRAMS}


TEST_AND_UP = pytest.mark.parametrize(
    ("command", "groups"), [(["scripts/test"], ["cluster", "tests"]), (["scripts/cluster", "up"], ["cluster"])], ids=" ".join
)


@pytest.mark.cluster
@TEST_AND_UP
def test_packages_are_installed_in_one_go_before_all_else(machine, command, groups):
    machine.add("apt-get", RECORDING_APT)
    done = machine.run(*command)
    assert done.returncode == 1, done.stderr
    update, install = machine.log.read_text().splitlines()
    assert update.endswith(" update")
    packages = install.partition("--no-install-recommends ")[2]
    assert set(missing(*groups).values()) <= set(packages.split())
    assert [line for line in done.stderr.splitlines() if line.endswith(f"installing {packages}")]
    assert "error: apt-get cannot install these packages" in done.stderr
    assert "not found" not in done.stderr
    assert "== environment" not in done.stdout


@pytest.mark.cluster
@TEST_AND_UP
def test_a_kernel_that_cannot_run_the_cluster_is_refused_before_any_package_is_installed(machine, command, groups):
    machine.add("apt-get", RECORDING_APT)
    machine.add("unshare", "#!/bin/sh\nexit 1\n")
    done = machine.run(*command)
    assert done.returncode == 1
    assert "does not offer: mount, network and pid namespaces" in done.stderr
    assert not machine.log.exists()


def test_help_installs_nothing(machine):
    machine.add("apt-get", RECORDING_APT)
    done = machine.run("scripts/test", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "scripts/test --fast" in done.stdout
    assert not machine.log.exists()


@pytest.mark.cluster
def test_a_machine_without_python_is_refused_as_such(machine):
    (machine.bin / "python3").unlink()
    done = machine.run("scripts/cluster", "check")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "error: no `python3` on PATH")


@pytest.mark.cluster
def test_nf_tables_is_found_with_the_right_to_it_and_only_then():
    program = [sys.executable, str(ROOT / "tests" / "cluster" / "harness" / "nf_tables.py")]
    assert subprocess.run(program, check=False).returncode == 0
    assert subprocess.run(["unshare", "--user", *program], check=False).returncode == 1


def test_only_what_is_missing_is_installed(machine):
    machine.add("apt-get", RECORDING_APT)
    for name in {*missing("tests")} - {"podman"}:
        machine.add(name)
    machine.run("scripts/packages", "install", "tests")
    packages = machine.log.read_text().splitlines()[1].partition("--no-install-recommends ")[2].split()
    assert {*packages} - {"libaio-dev"} == {"podman"}  # the only file in the group: this machine may have it or not


def test_apt_that_is_busy_is_waited_for(machine):
    """A new machine may still be updating itself."""
    busy = 'echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1" >&2; touch "$APT_LOG"; exit 100'
    machine.add("apt-get", f'#!/bin/sh\n[ -e "$APT_LOG" ] || {{ {busy}; }}\n{RECORDING_APT}')
    machine.add("touch", '#!/bin/sh\n: >"$1"\n')
    machine.run("scripts/packages", "install", "tests")
    assert "-qq update" in machine.log.read_text()


def test_apt_without_a_network_is_one_error(machine):
    machine.add("apt-get", "#!/bin/sh\necho 'E: Failed to fetch' >&2\nexit 100\n")
    done = machine.run("scripts/packages", "install", "tests")
    assert done.returncode == 1
    assert "error: apt-get cannot update its lists: E: Failed to fetch" in done.stderr


def test_without_apt_the_programs_and_their_packages_are_named(machine):
    done = machine.run("scripts/packages", "install", "tests")
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert {*missing("tests")} <= {*error.removeprefix("error: missing: ").split()}
    assert all(package in hint for package in missing("tests").values())


def test_without_root_the_command_is_named(machine):
    machine.add("apt-get", RECORDING_APT)
    machine.add("id", "#!/bin/sh\necho 1000\n")
    done = machine.run("scripts/packages", "install", "tests")
    assert done.returncode == 1
    assert "hint: sudo apt-get install " in done.stderr
    assert not machine.log.exists()


def test_a_package_without_its_program_is_an_error(machine):
    machine.add("apt-get", "#!/bin/sh\n")
    done = machine.run("scripts/packages", "install", "tests")
    assert done.returncode == 1
    assert "error: still missing after the installation: " in done.stderr
    assert " dockerd " in done.stderr


@pytest.mark.parametrize("groups", [[], ["test"], ["tests", "clusters"]], ids=" ".join)
def test_unknown_groups_are_refused(machine, groups):
    machine.add("apt-get", RECORDING_APT)
    assert machine.run("scripts/packages", "install", *groups).returncode == 1
    assert not machine.log.exists()
