"""Jobs in queues of a real Kueue: a job waits, shows Kueue's reason, is admitted, and runs.

Kueue's webhooks see every job of the cluster, so these tests install Kueue and remove it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfjob.api.jobs import attach
from kfjob.api.run import Run
from kfjob.api.settings import Settings
from kfjob.cluster.backend import KubernetesBackend
from kfjob.joblog.diagnose.diagnosis import Issue
from kfjob.joblog.events import JobPhase, WorkloadStatus
from tests.cluster import facts
from tests.cluster.facts import Space, needs_own_cluster, script, until

pytestmark = pytest.mark.long  # the first run builds Kueue, in minutes

IDLE = ["python3", "-c", "import time; time.sleep(3600)"]
QUOTA = 0.5  # CPUs of each queue


@pytest.fixture(scope="module")
def queues(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    """Create the queues `open`, `held` (stopped by its administrator) and `adrift` (without a cluster queue)."""
    needs_own_cluster("installs Kueue")
    script("kueue", "up")
    file = tmp_path_factory.mktemp("kueue") / "queues.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": _objects(space.name)}))
    try:
        script("kubectl", "apply", "--server-side", "-f", str(file))
        yield space
    finally:  # Kueue holds finalizers on objects in use, so it must run while they are deleted
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
        *(_object("LocalQueue", queue, {"clusterQueue": f"{space}-{queue}"}, space) for queue in ("open", "held", "adrift")),
    ]


def _object(kind: str, name: str, spec: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def submit(
    queues: Space, backend: KubernetesBackend, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Run]:
    """Return a function that submits a job with one worker to a queue."""
    monkeypatch.setenv("KUBECONFIG", queues.facts.kubeconfig)

    def job(queue: str, command: list[str] = IDLE, *, cpu: str = str(QUOTA), number: int = 0) -> Run:
        plan = queues.plan(f"{name}-{number}", command, resources={"cpu": cpu}, scheduling={"queue": queue})
        facts.submit(backend, plan)
        return attach(plan.name, settings=Settings(state=tmp_path, backend="kubernetes", namespace=queues.name))

    return job


def first_issue(run: Run) -> Issue | None:
    """Return the first cause or warning of the diagnosis."""
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
def test_reason_of_a_job_that_is_not_admitted(
    queues: Space, submit: Callable[..., Run], *, queue: str, cpu: str, rule: str, title: str
):
    run = submit(queue, cpu=cpu)
    until(lambda: (issue := first_issue(run)) is not None and issue.rule == rule)
    issue = first_issue(run)
    assert issue
    assert issue.title == title.replace("SPACE", queues.name)
    assert issue.evidence
    snapshot = run.snapshot()
    assert snapshot.job.phase is JobPhase.SUSPENDED
    assert snapshot.pods == ()
    run.stop()


def test_job_is_admitted_when_another_job_stops(submit: Callable[..., Run]):
    first = submit("open")
    until(lambda: first.snapshot().job.phase is JobPhase.RUNNING)
    second = submit("open", ["python3", "-c", "print(1)"], number=1)
    until(lambda: (issue := first_issue(second)) is not None and issue.rule == "queue-waits")
    waits = second.status()
    assert second.snapshot().job.phase is JobPhase.SUSPENDED
    assert "insufficient unused quota" in waits.headline
    first.stop()
    assert second.wait(timeout=120) is JobPhase.SUCCEEDED
    (workload,) = [event for event in second.events() if isinstance(event, WorkloadStatus)]
    assert workload.admitted
    assert workload.queue == "open"
    second.stop()
