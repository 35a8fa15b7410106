"""A job in a queue of a real Kueue: it waits, is told why in Kueue's own words, is admitted, and runs.

Kueue's webhooks stand before every job of the cluster, so it is installed for these tests alone and taken away after them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfjob.api.attach import attach
from kfjob.api.run import Run
from kfjob.api.settings import Settings
from kfjob.backends.kubernetes.backend import KubernetesBackend
from kfjob.events import JobPhase, WorkloadStatus
from kfjob.observe.diagnose.diagnosis import Issue
from tests.cluster.facts import Space, needs_own_cluster, script, until

pytestmark = pytest.mark.long  # Kueue is built for it, once, in minutes

IDLE = ["python3", "-c", "import time; time.sleep(3600)"]
QUOTA = 0.5  # CPUs of each queue


@pytest.fixture(scope="module")
def queues(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    """Queues `open`, `held` (its administrator has stopped it) and `adrift` (what it leads to is not there)."""
    needs_own_cluster("installs Kueue in it")
    script("kueue", "up")
    file = tmp_path_factory.mktemp("kueue") / "queues.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": _objects(space.name)}))
    try:
        script("kubectl", "apply", "--server-side", "-f", str(file))
        yield space
    finally:  # Kueue holds what is in use, and must be there to let it go
        script("kubectl", "delete", "pytorchjobs", "--all", "-n", space.name, "--timeout=60s")
        script("kubectl", "delete", "-f", str(file), "--ignore-not-found", "--timeout=60s")
        script("kueue", "down")


def _objects(space: str) -> list[dict[str, Any]]:
    quota = [{"name": space, "resources": [{"name": "cpu", "nominalQuota": str(QUOTA)}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": quota}]
    everywhere: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": groups}
    return [
        _object("ResourceFlavor", space, {}),
        _object("ClusterQueue", f"{space}-open", everywhere),
        _object("ClusterQueue", f"{space}-held", {**everywhere, "stopPolicy": "Hold"}),
        *(_object("LocalQueue", one, {"clusterQueue": f"{space}-{one}"}, space) for one in ("open", "held", "adrift")),
    ]


def _object(kind: str, name: str, spec: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def submit(
    queues: Space, backend: KubernetesBackend, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Run]:
    """Submits a job of one worker to a queue; the job as `kfjob` has it."""
    monkeypatch.setenv("KUBECONFIG", queues.facts.kubeconfig)

    def job(queue: str, command: list[str] = IDLE, *, cpu: str = str(QUOTA), number: int = 0) -> Run:
        plan = queues.plan(f"{name}-{number}", command, resources={"cpu": cpu}, scheduling={"queue": queue})
        backend.submit(plan)
        return attach(plan.name, settings=Settings(state=tmp_path, backend="kubernetes", namespace=queues.name))

    return job


def said(run: Run) -> Issue | None:
    """The first thing that is said of the job."""
    diagnosis = run.diagnose()
    return diagnosis.first_cause or next(iter(diagnosis.warnings), None)


@pytest.mark.parametrize(
    ("queue", "cpu", "rule", "title"),
    [
        ("nobody-made-this", "0.1", "queue-missing", "queue `nobody-made-this` does not exist"),
        ("adrift", "0.1", "queue-missing", "queue `SPACE-adrift` does not exist"),
        ("held", "0.1", "queue-inactive", "queue `SPACE-held` is stopped"),
        ("open", "7", "queue-too-small", "the queue can never hold the job"),
    ],
)
def test_why_a_job_is_not_admitted(queues: Space, submit: Callable[..., Run], *, queue: str, cpu: str, rule: str, title: str):
    run = submit(queue, cpu=cpu)
    until(lambda: (finding := said(run)) is not None and finding.rule == rule)
    finding = said(run)
    assert finding
    assert finding.title == title.replace("SPACE", queues.name)
    assert finding.evidence
    snapshot = run.snapshot()
    assert snapshot.job.phase is JobPhase.SUSPENDED
    assert snapshot.pods == ()
    run.stop()


def test_a_job_waits_for_another_and_is_admitted_when_that_is_stopped(submit: Callable[..., Run]):
    first = submit("open")
    until(lambda: first.snapshot().job.phase is JobPhase.RUNNING)
    second = submit("open", ["python3", "-c", "print(1)"], number=1)
    until(lambda: (finding := said(second)) is not None and finding.rule == "queue-waits")
    waits = second.view(recorded=True)
    assert second.snapshot().job.phase is JobPhase.SUSPENDED
    assert "insufficient unused quota" in waits.headline
    first.stop()
    assert second.wait(timeout=120) is JobPhase.SUCCEEDED
    (workload,) = [event for event in second.events() if isinstance(event, WorkloadStatus)]
    assert workload.admitted
    assert workload.queue == "open"
    second.stop()
