"""The ways of docs/install.md to install kfjob, each in a clean environment.

The short tests install from a folder with wheels of the installed packages, without a network. The long ones use the package
index.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import kfjob
from tests.wheels import ROOT, link_installed, list_closure, list_needs, pack_installed

BIN = Path(sys.executable).parent
HOUR = 3600


def read_commands() -> dict[str, str]:
    """Return the commands of the page about the installation, by their first words."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).splitlines()
    commands = [re.sub(r"\s{2,}#.*", "", line) for line in lines]
    return {
        "checkout": next(line for line in commands if line.startswith("scripts/env")),
        "build": next(line for line in commands if line.startswith("uv build")),
        "tool": next(line for line in commands if line.startswith("uv tool")),
        "plain": next(line for line in commands if line.startswith("pip") and "[" not in line),
        "trainer": next(line for line in commands if line.startswith("pip") and "[trainer]" in line),
    }


class Place:
    """A clean clone, and an environment whose `uv` and `pip` write nothing outside a folder."""

    def __init__(self, folder: Path, *, packages: Path | None) -> None:
        self.clone, self.environment = folder / "clone", folder / "environment"
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(self.clone)], check=True)
        programs = folder / "programs"
        programs.mkdir()
        (programs / "uv").symlink_to(BIN / "uv")
        (programs / "pip").write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {self.environment} "$@"\n')
        (programs / "pip").chmod(0o755)
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith(("KFJOB_", "PYTHON", "VIRTUAL_ENV"))
        }
        self.env |= {
            "PATH": f"{programs}:/usr/bin:/bin",
            "UV_PYTHON": os.path.realpath(sys.executable),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_TOOL_DIR": str(folder / "tools"),
            "UV_TOOL_BIN_DIR": str(folder / "bin"),
        }
        if packages:
            folders = {"UV_FIND_LINKS": str(packages), "PIP_FIND_LINKS": str(packages), "UV_CACHE_DIR": str(folder / "cache")}
            self.env |= folders | {"UV_OFFLINE": "1", "UV_NO_INDEX": "1", "PIP_NO_INDEX": "1", "UV_NO_CONFIG": "1"}
            self.env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_COMPILE": "1", "UV_LINK_MODE": "hardlink"}

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", command], cwd=self.clone, env=self.env, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def make_environment(self) -> Path:
        """Create the environment that `pip` installs in, without packages."""
        venv.create(self.environment, symlinks=True)
        return self.environment

    def check_commands(self, folder: Path) -> None:
        """Run the installed command: it shows its version, and checks and compiles a spec."""
        command = shlex.quote(str(folder / "kfjob"))
        assert self.run(f"{command} --version") == f"kfjob {kfjob.__version__}\n"
        manifests = self.run(f"{command} render examples/own-script/job.yaml --backend kubernetes --set image=a.test/b:1")
        assert "kind: PyTorchJob" in manifests


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """A folder with wheels of the packages that kfjob and its build need."""
    folder = tmp_path_factory.mktemp("packages")
    pack_installed(list_needs(wheel) | list_closure(["hatchling"]), folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, packages: Path) -> Place:
    return Place(tmp_path, packages=packages)


def test_wheel_of_a_clean_clone_installs_as_a_tool_and_with_pip(place, tmp_path):
    commands = read_commands()
    place.run(commands["build"])
    place.run(commands["tool"])
    place.check_commands(tmp_path / "bin")
    environment = place.make_environment()
    place.run(commands["plain"])
    place.check_commands(environment / "bin")
    installed = {path.name.partition("-")[0] for path in environment.glob("lib/python*/site-packages/*.dist-info")}
    assert "kfjob" in installed
    assert "torch" not in installed


def test_wheel_with_the_trainer_needs_only_what_the_extra_names(place, wheel):
    """Torch has gigabytes, so that the environment has links to the installed packages; pip checks that none is missing."""
    (place.clone / "dist").mkdir()
    (place.clone / "dist" / wheel.name).symlink_to(wheel)
    environment = place.make_environment()
    link_installed(list_needs(wheel, "trainer"), environment)
    place.run(read_commands()["trainer"])
    place.check_commands(environment / "bin")
    place.run(f"{environment}/bin/python -c 'import importlib.util as u; assert u.find_spec(\"torch\")'")


def test_checkout_command_is_that_of_the_contributors_page():
    assert read_commands()["checkout"].startswith("scripts/env trainer")
    assert read_commands()["checkout"] in re.sub(r"\s{2,}#.*", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert "scripts/env trainer" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.timeout(HOUR)
def test_index_has_the_packages_of_the_tool_and_of_the_build(tmp_path):
    place = Place(tmp_path, packages=None)
    place.run("uv venv --quiet builder && uv pip install --quiet --python builder build && builder/bin/python -m build")
    names = {path.name for path in (place.clone / "dist").iterdir()}
    assert names == {f"kfjob-{kfjob.__version__}-py3-none-any.whl", f"kfjob-{kfjob.__version__}.tar.gz"}
    place.run(read_commands()["tool"])
    place.check_commands(tmp_path / "bin")
    environment = place.make_environment()
    place.run(read_commands()["plain"])
    place.check_commands(environment / "bin")


@pytest.mark.long
@pytest.mark.trainer
@pytest.mark.timeout(HOUR)
def test_index_has_the_packages_of_the_trainer(tmp_path):
    """It downloads about 5 GB."""
    place = Place(tmp_path, packages=None)
    place.run(read_commands()["build"])
    environment = place.make_environment()
    place.run(read_commands()["trainer"])
    place.check_commands(environment / "bin")
    place.run(f"{environment}/bin/python -m kfjob.trainer --help")
