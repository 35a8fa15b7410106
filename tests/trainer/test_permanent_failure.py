"""Failures that no restart cures, with a real torchrun: each further attempt ends at once, with the same message."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kfjob.trainer.permanent_failure import read_previous_failure, write_error_file
from tests.local.machine import Machine

pytestmark = [pytest.mark.local, pytest.mark.trainer]

HIDE = """
import importlib.machinery as machinery, os
hidden, find = os.environ.get("HIDDEN", "").split(), machinery.PathFinder.find_spec
machinery.PathFinder.find_spec = classmethod(lambda cls, name, *rest: None if name in hidden else find(name, *rest))
"""
ARGUMENTS = ["--model=micro-llama", "--max-steps=1", "--sequence-length=16"]
OUTCOME = re.compile(r"E \[(\w+)\.py:\d+\] Outcome failed step none loss none checkpoint none permanent reason (.*)")


@pytest.fixture
def without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that has everything but tensorboard."""
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(HIDE)
    paths = [str(tmp_path / "hide"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("HIDDEN", "tensorboard")


def run_torchrun(*arguments: str, ranks: int) -> str:
    command = [str(Path(sys.executable).with_name("torchrun")), "--standalone", f"--nproc-per-node={ranks}", "--max-restarts=2"]
    argv = [*command, "--monitor-interval=0.1", "-m", "kfjob.trainer", *ARGUMENTS, *arguments]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 1
    return result.stdout + result.stderr


@pytest.mark.usefixtures("without_tensorboard")
def test_a_missing_package_ends_every_attempt_before_torch_is_imported(tmp_path: Path):
    output = run_torchrun("--data=synthetic", f"--tensorboard-dir={tmp_path}", ranks=2)
    assert set(OUTCOME.findall(output)) == {("__main__", '"`tensorboard_dir` needs the package tensorboard"')}
    assert "hint: add `pip install tensorboard` to the Dockerfile" in output


def test_missing_data_is_found_once(tmp_path: Path):
    output = run_torchrun(f"--data={tmp_path}/none", ranks=1)
    places = [place for place, _ in OUTCOME.findall(output)]
    assert places == ["run", "__main__", "__main__"]  # the restarts end before the imports
    assert f"error: no data at `{tmp_path}/none`" in output


def test_a_local_job_is_not_restarted(tmp_path: Path):
    machine = Machine(tmp_path)
    argv = ["torchrun", "-m", "kfjob.trainer", *ARGUMENTS, "--data=/nowhere/text"]
    (tmp_path / "job.json").write_text(json.dumps({"name": "gone", "command": argv, "restarts": {"max": 50}}))
    result = machine.run("submit", str(tmp_path / "job.json"), "--follow")
    assert result.returncode == 100, result.stderr
    assert "gone  Failed: a restart cannot cure this: there is no data at `/nowhere/text`" in result.stderr


@pytest.mark.usefixtures("without_tensorboard")
def test_a_missing_package_is_found_before_the_start(tmp_path: Path):
    machine = Machine(tmp_path)
    train = {"model": "micro-llama", "data": "synthetic", "max_steps": 1, "sequence_length": 16, "tensorboard_dir": "tb"}
    (tmp_path / "job.json").write_text(json.dumps({"name": "tracked", "train": train}))
    for command in ("validate", "preflight", "submit"):
        result = machine.run(command, str(tmp_path / "job.json"))
        assert result.returncode != 0
        assert "error: `tensorboard_dir` needs the package tensorboard" in result.stderr + result.stdout
        assert re.search(r"hint: `uv pip install --python \S+/python tensorboard`", result.stderr + result.stdout)


def test_only_a_permanent_failure_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def start_attempt(number: int) -> None:
        file = tmp_path / f"attempt_{number}" / "0" / "error.json"
        file.parent.mkdir(parents=True)
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))

    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    write_error_file("nobody reads this")
    assert read_previous_failure() is None
    start_attempt(0)
    assert read_previous_failure() is None
    write_error_file("the store does not answer")
    start_attempt(1)
    assert read_previous_failure() is None
    write_error_file("error: no data", permanent_reason="no data")
    start_attempt(2)
    assert read_previous_failure() == ("error: no data", "no data")
    (tmp_path / "attempt_1" / "0" / "error.json").write_text("{")
    assert read_previous_failure() is None
