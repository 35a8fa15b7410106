"""The example of one's own script: kfjob reads its lines without a setting, and a second launch resumes from its checkpoint."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfjob.source.spec_text import load_spec
from tests.local.machine import Machine
from tests.wheels import ROOT

EXAMPLE = ROOT / "examples" / "own-script"
FORK = ("--set", "env.PET_START_METHOD=fork", "--set", "env.PET_RUN_PATH=1")
"""Agents fork their ranks, so that torch is imported once on each node."""
pytestmark = [pytest.mark.local, pytest.mark.trainer]


@pytest.fixture
def kfjob(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, cwd=EXAMPLE)
    yield machine
    machine.run("stop", "own-script")


def read_commands() -> list[list[str]]:
    """Return the arguments of each kfjob command in the example's README."""
    lines = (EXAMPLE / "README.md").read_text(encoding="utf-8").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("    kfjob ")]


def test_commands_of_the_readme_train_resume_and_stop(kfjob):
    run, relaunch, stop = read_commands()
    split = run.index("--")
    first = kfjob.run(*run[:split], *FORK, *run[split:])
    assert first.returncode == 0, first.stderr
    assert "progress is read from lines like `step 10/200 | loss" in first.stderr
    progress = json.loads(kfjob("status", "own-script", "-o", "json"))["progress"]
    assert (progress["step"], progress["total"], progress["unit"]) == (200, 200, "samples/s")
    assert progress["loss"] < progress["first_loss"]
    assert json.loads(kfjob("master", "own-script", "-o", "json"))["confidence"] == "confirmed"
    second = kfjob.run(*relaunch)
    assert second.returncode == 0, second.stderr
    assert re.search(r"^resuming from step 200 of \S+/checkpoint\.pt$", second.stdout, re.MULTILINE)
    assert next(line for line in second.stdout.splitlines() if line.startswith("step ")).startswith("step 210/400 ")
    assert kfjob(*stop) == "own-script\n"


def test_spec_of_the_example_is_what_run_saves(kfjob):
    (run, *_) = read_commands()
    (kfjob.folder / "saved.yaml").write_text(kfjob("run", "--save", "-", *run[1:]))
    specs = [load_spec(file.read_text(encoding="utf-8")).spec for file in (EXAMPLE / "job.yaml", kfjob.folder / "saved.yaml")]
    assert specs[0] == specs[1]


def test_example_is_as_short_as_promised_and_knows_nothing_of_kfjob():
    assert len((EXAMPLE / "README.md").read_text(encoding="utf-8").splitlines()) <= 11
    code = (EXAMPLE / "train.py").read_text(encoding="utf-8")
    assert not re.search(r"^\s*(?:import|from) kfjob", code, re.MULTILINE)
    assert sorted(path.name for path in EXAMPLE.iterdir()) == ["README.md", "job.yaml", "train.py"]
