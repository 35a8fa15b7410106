"""Why pods do not start or do not stay, on the real cluster: the scheduler's, the kubelet's and the kernel's own words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfjob.api.config import Settings
from kfjob.api.run import Run, attach
from kfjob.backends.kubernetes import requests
from kfjob.compile.pytorchjob import manifests
from kfjob.events import JobPhase
from kfjob.observe.diagnose.diagnosis import Diagnosis
from kfjob.observe.diagnose.rule import NOT_SAID
from tests.cluster.facts import PATIENCE, Space

IDLE = ["python3", "-c", "import time; time.sleep(600)"]
HUNGRY = ["python3", "-c", "held = bytearray(512 << 20); held[::4096] = bytes(len(held[::4096])); print('not killed')"]
BROKEN = ["python3", "-c", "import flash_attn"]


def with_secret(job: dict[str, Any]) -> dict[str, Any]:
    """A variable from a secret that nobody has made."""
    pods = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    reference = {"secretKeyRef": {"name": "hub", "key": "token"}}
    pods["containers"][0].setdefault("env", []).append({"name": "HF_TOKEN", "valueFrom": reference})
    return job


JOBS: dict[str, tuple[list[str], dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "image-not-found": (IDLE, {"image": "127.0.0.1:26500/nobody/has-this:1"}, dict),  # the test cluster's own registry
    "registry-unreachable": (IDLE, {"image": "nowhere.invalid/a:1"}, dict),
    "no-gpu-free": (IDLE, {"resources": {"gpus": 8}}, dict),
    "out-of-memory": (HUNGRY, {"resources": {"memory": "64Mi"}}, dict),
    "secret-missing": (IDLE, {}, with_secret),
    "claim-missing": (IDLE, {"volumes": [{"name": "ckpt", "pvc": "nobody-has-this", "mount_path": "/ckpt"}]}, dict),
    "module-not-found": (BROKEN, {"restarts": {"policy": "OnFailure"}}, dict),
    "container-start": (["torchrnu", "train.py"], {}, dict),
}


@pytest.fixture(scope="module")
def jobs(space: Space) -> Iterator[dict[str, str]]:
    """Every job, submitted at once: their waits go on at the same time."""
    with space.open() as backend:
        names = {}
        for rule, (command, spec, change) in JOBS.items():
            volumes = spec.get("volumes", [])
            plan = space.plan(f"job-{rule}", command, **{**spec, "volumes": volumes})
            space.client.call(requests.create(change(manifests(plan)[0])))
            names[rule] = plan.name
        yield names
        for name in names.values():
            snapshot = backend.get(name, namespace=space.name)
            space.client.call(requests.delete_job(space.name, name, snapshot.uid))


def run_of(name: str, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("KUBECONFIG", space.facts.kubeconfig)
    return attach(name, settings=Settings(state=tmp_path, backend="kubernetes", namespace=space.name))


def until(run: Run, condition: Callable[[Diagnosis], bool]) -> Diagnosis:
    deadline = time.monotonic() + PATIENCE
    while not condition(diagnosis := run.diagnose()):
        assert time.monotonic() < deadline, f"{run.snapshot()}\n{diagnosis}"
        time.sleep(0.5)
    return diagnosis


@pytest.mark.parametrize("rule", sorted(JOBS))
def test_what_keeps_a_pod_from_running(
    rule: str, jobs: dict[str, str], space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = run_of(jobs[rule], space, tmp_path, monkeypatch)
    diagnosis = until(run, lambda seen: seen.first is not None and seen.first.rule == rule)
    assert diagnosis.first
    assert diagnosis.first.pod == f"{jobs[rule]}-worker-0"
    assert diagnosis.first.evidence[0]
    assert NOT_SAID not in diagnosis.first.title + diagnosis.first.cause
    assert "{" not in diagnosis.first.remedy


def test_a_crash_loop_that_the_operator_calls_running(
    jobs: dict[str, str], space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = run_of(jobs["module-not-found"], space, tmp_path, monkeypatch)
    diagnosis = until(run, lambda seen: "crash-loop" in {one.rule for one in seen.followed})
    assert run.snapshot().job.phase in {JobPhase.RUNNING, JobPhase.RESTARTING}
    assert diagnosis.first
    assert diagnosis.first.title == "module `flash_attn` is not in the image"
