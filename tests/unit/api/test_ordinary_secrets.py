"""A secret that equals a word of kfjob's own breaks no command, and hides no state and no name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kfjob.api.secrets import find_object_secrets
from kfjob.backends import folder
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, KubernetesEvent, PodChanged, PodPhase
from tests.unit.api.conftest import Shell

POD = PodChanged(pod="train-worker-0", phase=PodPhase.FAILED, uid="uid-of-a-pod", node="node-7", reason="Error", exit_code=1)
EVENT = KubernetesEvent(kind="Pod", name="train-worker-0", reason="BackOff", message="Back-off", warning=True, uid="event-1")
LINES = "torchrun: error: argument --nproc-per-node: invalid choice\nValueError: Unsupported nproc_per_node value: none8\n"
WORDS = ["Failed", "error", "train", "train-worker-0", "node-7", "uid-of-a-pod", "Pod", "BackoffLimitExceeded"]
COMMANDS = ["status", "diagnose", "master", "report"]


def write_job(root: Path, password: str) -> JobSnapshot:
    spec = {"name": "train", "image": "a:1", "command": "python train.py", "env": {"PASSWORD": password}}
    job = JobChanged(phase=JobPhase.FAILED, reason="BackoffLimitExceeded", message="no more attempts")
    snapshot = JobSnapshot(
        name="train", namespace="default", job=job, pods=(POD,), uid="uid-1", launch="launch-1", spec=json.dumps(spec)
    )
    folder.write_snapshot(folder.make_private(root), snapshot)
    folder.write_events(root, [EVENT])
    log = folder.log_path(root, POD.pod)
    log.parent.mkdir()
    log.write_text(LINES)
    return snapshot


def run_commands(kfjob: Shell, path: Path) -> dict[str, tuple[int, str]]:
    results = {}
    for command in COMMANDS:
        options = ["-o", "-" if command == "report" else "json"]
        results[command] = kfjob(command, "--from", str(path), *options), kfjob.out.replace(str(path), "PATH")
    return results


@pytest.mark.parametrize("word", WORDS)
def test_secret_that_is_a_word_of_kfjob_changes_no_output(kfjob: Shell, tmp_path: Path, here: Path, word: str):
    write_job(tmp_path / "plain", "")
    write_job(tmp_path / "secret", word)
    plain, secret = run_commands(kfjob, tmp_path / "plain"), run_commands(kfjob, tmp_path / "secret")
    for command in ("status", "diagnose", "master"):
        assert secret[command] == plain[command]
    assert secret["report"][0] == 0


def test_an_object_whose_name_the_server_completes_has_no_name_yet():
    job = {"kind": "PyTorchJob", "metadata": {"name": "train"}}
    secret = {
        "kind": "Secret",
        "metadata": {"generateName": "train-key-"},
        "stringData": {"key": "hidden-value", "job": "train"},
    }
    assert find_object_secrets([job, secret]) == {"hidden-value"}
