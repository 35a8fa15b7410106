"""Scripts install missing Debian packages in one step before anything else. A stub for apt-get records its arguments."""

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
    """A machine with the programs of a minimal root and a log of apt-get calls."""

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
        (folder / "cache" / "bin" / ".operator").touch()  # as after a build, so that the disk check asks only for a cluster

    def add(self, name: str, script: str = "#!/bin/sh\n") -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o700)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def missing_programs(*groups: str) -> dict[str, str]:
    """Return the programs that a minimal root lacks, and their packages."""
    return {name: package for name, package in packaged(*groups).items() if "/" not in name and name not in PROGRAMS}


TEST_AND_UP = pytest.mark.parametrize(
    ("command", "groups"), [(["scripts/test"], ["cluster", "tests"]), (["scripts/cluster", "up"], ["cluster"])], ids=" ".join
)


@pytest.mark.cluster
@TEST_AND_UP
def test_packages_are_installed_first_in_one_step(machine, command, groups):
    machine.add("apt-get", RECORDING_APT)
    result = machine.run(*command)
    assert result.returncode == 1, result.stderr
    update, install = machine.log.read_text().splitlines()
    assert update.endswith(" update")
    packages = install.partition("--no-install-recommends ")[2]
    assert set(missing_programs(*groups).values()) <= set(packages.split())
    assert [line for line in result.stderr.splitlines() if line.endswith(f"installing {packages}")]
    assert "error: apt-get cannot install these packages" in result.stderr
    assert "not found" not in result.stderr
    assert "== environment" not in result.stdout


@pytest.mark.cluster
@TEST_AND_UP
def test_unsuitable_kernel_is_an_error_before_installation(machine, command, groups):
    machine.add("apt-get", RECORDING_APT)
    machine.add("unshare", "#!/bin/sh\nexit 1\n")
    result = machine.run(*command)
    assert result.returncode == 1
    assert "lacks: mount, network and pid namespaces" in result.stderr
    assert not machine.log.exists()


def test_help_installs_nothing(machine):
    machine.add("apt-get", RECORDING_APT)
    result = machine.run("scripts/test", "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert "scripts/test --fast" in result.stdout
    assert not machine.log.exists()


@pytest.mark.cluster
def test_missing_python_is_an_error(machine):
    (machine.bin / "python3").unlink()
    result = machine.run("scripts/cluster", "check")
    assert (result.returncode, result.stderr.splitlines()[0]) == (1, "error: no `python3` on PATH")


@pytest.mark.cluster
def test_nf_tables_check_needs_root():
    program = [sys.executable, str(ROOT / "tests" / "cluster" / "harness" / "nf_tables.py")]
    assert subprocess.run(program, check=False).returncode == 0
    assert subprocess.run(["unshare", "--user", *program], check=False).returncode == 1


def test_only_missing_packages_are_installed(machine):
    machine.add("apt-get", RECORDING_APT)
    for name in {*missing_programs("tests")} - {"podman"}:
        machine.add(name)
    machine.run("scripts/packages", "install", "tests")
    packages = machine.log.read_text().splitlines()[1].partition("--no-install-recommends ")[2].split()
    assert {*packages} - {"libaio-dev"} == {"podman"}  # the group's only file; this machine may have it


def test_busy_apt_is_retried(machine):
    """A new machine may still run its first update."""
    busy = 'echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1" >&2; touch "$APT_LOG"; exit 100'
    machine.add("apt-get", f'#!/bin/sh\n[ -e "$APT_LOG" ] || {{ {busy}; }}\n{RECORDING_APT}')
    machine.add("touch", '#!/bin/sh\n: >"$1"\n')
    machine.run("scripts/packages", "install", "tests")
    assert "-qq update" in machine.log.read_text()


def test_apt_without_network_is_an_error(machine):
    machine.add("apt-get", "#!/bin/sh\necho 'E: Failed to fetch' >&2\nexit 100\n")
    result = machine.run("scripts/packages", "install", "tests")
    assert result.returncode == 1
    assert "error: apt-get cannot update its lists: E: Failed to fetch" in result.stderr


def test_missing_apt_lists_programs_and_packages(machine):
    result = machine.run("scripts/packages", "install", "tests")
    assert result.returncode == 1
    error, hint = result.stderr.splitlines()
    assert {*missing_programs("tests")} <= {*error.removeprefix("error: missing: ").split()}
    assert all(package in hint for package in missing_programs("tests").values())


def test_missing_root_prints_the_command(machine):
    machine.add("apt-get", RECORDING_APT)
    machine.add("id", "#!/bin/sh\necho 1000\n")
    result = machine.run("scripts/packages", "install", "tests")
    assert result.returncode == 1
    assert "hint: sudo apt-get update && sudo apt-get install " in result.stderr
    assert not machine.log.exists()


def test_package_without_its_program_is_an_error(machine):
    machine.add("apt-get", "#!/bin/sh\n")
    result = machine.run("scripts/packages", "install", "tests")
    assert result.returncode == 1
    assert "error: still missing after the installation: " in result.stderr
    assert " dockerd " in result.stderr


@pytest.mark.parametrize("groups", [[], ["test"], ["tests", "clusters"]], ids=" ".join)
def test_unknown_groups_are_refused(machine, groups):
    machine.add("apt-get", RECORDING_APT)
    assert machine.run("scripts/packages", "install", *groups).returncode == 1
    assert not machine.log.exists()
