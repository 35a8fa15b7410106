"""Suspend, resume and scale a job on the real cluster."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import kfjob
from kfjob.api.settings import Settings
from kfjob.base.errors import NotFound
from kfjob.joblog.events import JobPhase
from tests.cluster.facts import Space, until
from tests.cluster.guarded import list_objects

STEPS = "i=0; while :; do i=$((i+1)); echo step $i/1000 loss 1.$i; sleep 0.5; done"


def has_printed(run: kfjob.Run) -> bool:
    """Return whether the container that runs now has printed a line."""
    with suppress(NotFound):
        return any(run.logs(pod="elastic-worker-0"))
    return False


def test_job_is_scaled_suspended_and_resumed_in_one_launch(space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBECONFIG", space.facts.kubeconfig)
    spec = {
        "name": "elastic",
        "image": space.facts.image,
        "elastic": {"min": 1, "max": 2},
        "command": ["sh", "-c", STEPS],
        "pod": {"grace": 1},
    }
    run = kfjob.submit(spec, settings=Settings(state=tmp_path, backend="kubernetes", namespace=space.name))
    assert run.wait(goal="progress", timeout=120) == "Running"
    run.scale(2)
    assert run.wait(goal="running", timeout=120) == "Running"
    assert len(run.snapshot().pods) == 2
    run.suspend()
    snapshot = run.snapshot()
    assert (snapshot.job.phase, snapshot.pods) == (JobPhase.SUSPENDED, ())
    run.resume()
    assert run.wait(goal="running", timeout=120) == "Running"
    assert run.snapshot().launch == run.launch
    until(lambda: has_printed(run))
    archive = run.stop()
    assert archive is not None
    earlier = (archive / "elastic-worker-0" / "pytorch.previous.log").read_text()
    assert "step 1/1000" in earlier
    assert (archive / "elastic-worker-0" / "pytorch.log").exists()


@pytest.mark.parametrize("cycles", [4, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_submit_and_stop_at_different_moments_leave_nothing(
    space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cycles: int
):
    monkeypatch.setenv("KUBECONFIG", space.facts.kubeconfig)
    image = space.facts.etcd_image
    settings = Settings(state=tmp_path, backend="kubernetes", namespace=space.name, etcd_image=image)
    moments = [0, 0.2, 0, 2.5, 1]
    before = list_all(space)

    def run_cycles(number: int) -> None:
        """Run every third cycle, each with a job of the same name."""
        for cycle in range(number, cycles, 3):
            spec = {
                "name": f"short-{number}",
                "image": space.facts.image,
                "nodes": 2,
                "rendezvous": {"backend": ("c10d", "etcd-v2")[cycle % 2]},
                "command": ["sh", "-c", STEPS],
                "pod": {"grace": 1},
            }
            run = kfjob.submit(spec, settings=settings)
            time.sleep(moments[cycle % len(moments)])
            run.stop()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(run_cycles, range(3)))
    until(lambda: list_all(space) == before)  # the controller of endpoints follows the services
    launches = [launch for job in (tmp_path / "archive" / space.name).iterdir() for launch in job.iterdir()]
    assert len(launches) == cycles


def list_all(space: Space) -> dict[str, list[str]]:
    """Return the names of everything that a job may leave in a namespace."""
    kinds = {
        "kubeflow.org/v1": ["pytorchjobs"],
        "v1": ["pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "endpoints"],
        "coordination.k8s.io/v1": ["leases"],
    }
    return {
        kind: sorted(item["metadata"]["name"] for item in list_objects(space, version, kind))
        for version, names in kinds.items()
        for kind in names
    }
