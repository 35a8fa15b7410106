"""`kfjob --version` names the commit of a checkout, and only the version elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from kfjob import __version__
from kfjob.cli import version
from kfjob.cli.version import describe_version
from tests.wheels import ROOT

SHOW = "from kfjob.cli.main import main; main()"


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the package as it is here, and one commit with a tag."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "kfjob", root / "kfjob", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    git(tmp_path, "init", "--quiet", str(root))
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "all")
    git(root, "tag", "-a", "v9", "-m", "nine")
    return root


def show(root: Path, **environment: str) -> str:
    """Return the version that a new process prints with the package of this folder."""
    env = os.environ | {"PYTHONPATH": str(root)} | environment
    command = [sys.executable, "-c", SHOW, "--version"]
    return subprocess.run(command, env=env, cwd="/", check=True, capture_output=True, text=True).stdout


def test_checkout_shows_its_commit_and_whether_tracked_files_changed(checkout):
    commit = git(checkout, "rev-parse", "--short=7", "HEAD")
    (checkout / "new.txt").write_text("not tracked")
    assert show(checkout) == f"kfjob {__version__} (checkout {commit})\n"
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert show(checkout) == f"kfjob {__version__} (checkout {commit}, changed)\n"


def test_git_variables_of_the_shell_do_not_select_another_repository(checkout):
    commit = git(checkout, "rev-parse", "--short=7", "HEAD")
    assert commit in show(checkout, GIT_DIR=str(ROOT / ".git"), GIT_WORK_TREE=str(ROOT))


def test_the_file_monitor_of_a_checkout_is_not_started(checkout, tmp_path):
    started = tmp_path / "started"
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {started}\n")
    monitor.chmod(0o755)
    git(checkout, "config", "core.fsmonitor", str(monitor))
    assert "checkout" in describe_version(checkout / "kfjob")
    assert not started.exists()
    git(checkout, "status")
    assert started.exists()  # git itself starts it


def test_without_git_only_the_version_is_shown(checkout):
    assert show(checkout, PATH="/nonexistent") == f"kfjob {__version__}\n"


def test_folder_that_git_cannot_read_shows_only_the_version(checkout):
    shutil.rmtree(checkout / ".git")
    (checkout / ".git").write_text("gitdir: /nonexistent\n")
    assert show(checkout) == f"kfjob {__version__}\n"


def test_wheel_inside_a_repository_shows_only_the_version(wheel, checkout):
    packages = checkout / "site-packages"
    with ZipFile(wheel) as archive:
        archive.extractall(packages)
    assert show(packages) == f"kfjob {__version__}\n"


def test_other_commands_do_not_start_git(kfjob, monkeypatch):
    monkeypatch.setattr(version, "run_program", lambda *_, **__: pytest.fail("git was started"))
    assert kfjob("--help") == 0
    assert kfjob("schema") == 0
    with pytest.raises(pytest.fail.Exception):
        kfjob("--version")


def test_version_of_this_checkout_is_a_line(kfjob):
    assert kfjob("--version") == 0
    assert kfjob.out == describe_version() + "\n"
