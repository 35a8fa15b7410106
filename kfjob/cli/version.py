"""The version that `kfjob --version` prints. Only this option and the command `kfjob version` start git."""

from __future__ import annotations

import os
from pathlib import Path

from kfjob.base.programs import TooMuchOutputError, run_program
from kfjob.base.units import KIB
from kfjob.base.version import __version__

_PACKAGE = Path(__file__).resolve().parents[1]
_GIT_SECONDS = 10
"""Timeout of git."""
_CHANGED = "-dirty"


def describe_version(package: Path = _PACKAGE) -> str:
    """Return the name and the version, and for a package in a checkout also the commit, as in `(checkout 1a2b3c4, changed)`.

    `changed` means that tracked files of the checkout differ from the commit.
    """
    commit = _describe_commit(package.parent)
    if not commit:
        return f"kfjob {__version__}"
    changed = ", changed" if commit.endswith(_CHANGED) else ""
    return f"kfjob {__version__} (checkout {commit.removesuffix(_CHANGED)}{changed})"


def _describe_commit(root: Path) -> str:
    """Return the commit of a checkout of kfjob; "" for another folder, without git, or if git fails."""
    if not ((root / ".git").exists() and (root / "pyproject.toml").is_file()):
        return ""
    settings = ["-c", "core.fsmonitor=false"]  # it would start a program that the folder's own settings name
    command = ["git", *settings, "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=7", f"--dirty={_CHANGED}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        output = run_program(command, seconds=_GIT_SECONDS, max_bytes=KIB, environment=environment)
    except (OSError, TimeoutError, TooMuchOutputError):
        return ""
    return output.stdout.strip() if output.code == 0 else ""
