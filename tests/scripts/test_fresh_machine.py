"""The quickstart and the tests on a fresh machine: a minimal Debian with its own environment."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripts import minimal_root
from tests.scripts.commands import ROOT
from tests.scripts.minimal_root import PROGRAMS, MinimalRoot

CLONE = "/root/kfjob"
HOUR = 3600
COMMANDS = (
    "scripts/cluster up && scripts/cluster status && scripts/cluster down",
    "scripts/quickstart",
    ". .venv/bin/activate && kfjob status tiny-llama",
    # the second command with one test file; it must not stop a cluster that was running before
    "scripts/cluster up && scripts/test tests/cluster/test_cluster_itself.py && scripts/cluster status && scripts/cluster down",
)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[MinimalRoot]:
    """Yield a minimal root with a clean clone of the last commit; it grows to 30 GB."""
    root = minimal_root.create_root(tmp_path / "root")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), f"{root.folder}{CLONE}"], check=True)
    yield root
    shutil.rmtree(root.folder)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(2 * HOUR)
def test_readme_commands_on_a_fresh_machine(machine: MinimalRoot, tmp_path: Path):
    """No test cluster may run on this machine, because both need the same network interface."""
    assert machine.programs() >= PROGRAMS
    assert not machine.programs() & {"curl", "g++", "go", "make", "nft", "pip3"}
    for number, command in enumerate(COMMANDS):
        log = tmp_path / f"{number}.log"
        with log.open("wb") as output:
            result = machine.run("bash", "-euc", command, cwd=CLONE, output=output, timeout=HOUR)
        text = log.read_text(encoding="utf-8", errors="replace")
        print(f"$ {command}\n{text}")  # noqa: T201 - `pytest -s` shows it
        assert result.returncode == 0, text
        assert "command not found" not in text
        assert command.endswith("down") == text.endswith("nothing is left of a test cluster\n")
