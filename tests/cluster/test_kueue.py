"""Jobs in queues of a real Kueue: a job waits, shows Kueue's reason, is admitted, and runs.

Kueue's webhooks see every job of the cluster, so these tests install Kueue and remove it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kfjob
from kfjob.api.jobs import attach
from kfjob.api.run import Run
from kfjob.api.settings import Settings
from kfjob.cluster.backend import KubernetesBackend
from kfjob.joblog.diagnose.diagnosis import Issue
from kfjob.joblog.events import JobPhase, LogLine, WorkloadStatus
from tests.cluster import facts
from tests.cluster.facts import Space, needs_own_cluster, script, until
from tests.cluster.guarded import PROGRAM, SHARED, list_objects
from tests.cluster.shell import Shell

pytestmark = pytest.mark.long  # the first run builds Kueue, in minutes

IDLE = ["python3", "-c", "import time; time.sleep(3600)"]
QUOTA = 0.5  # CPUs of each queue
QUEUES = ("open", "held", "adrift", "shared", "racks")
HOSTNAME = "kubernetes.io/hostname"


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
    racks = [{"coveredResources": ["cpu"], "flavors": [{**quota[0], "name": f"{space}-racks"}]}]
    return [
        _object("ResourceFlavor", space, {}),
        _object("ClusterQueue", f"{space}-open", everywhere),
        _object("ClusterQueue", f"{space}-held", {**everywhere, "stopPolicy": "Hold"}),
        _object("ClusterQueue", f"{space}-shared", {**everywhere, "preemption": {"withinClusterQueue": "LowerPriority"}}),
        {**_object("WorkloadPriorityClass", f"{space}-urgent"), "value": 1000},
        _object("Topology", space, {"levels": [{"nodeLabel": HOSTNAME}]}),
        _object("ResourceFlavor", f"{space}-racks", {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": space}),
        _object("ClusterQueue", f"{space}-racks", {**everywhere, "resourceGroups": racks}),
        *(_object("LocalQueue", queue, {"clusterQueue": f"{space}-{queue}"}, space) for queue in QUEUES),
    ]


def _object(kind: str, name: str, spec: dict[str, Any] | None = None, namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata}
    return head if spec is None else {**head, "spec": spec}


@pytest.fixture
def submit(
    queues: Space, backend: KubernetesBackend, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Run]:
    """Return a function that submits a job with one worker to a queue."""
    monkeypatch.setenv("KUBECONFIG", queues.facts.kubeconfig)

    def job(queue: str, command: list[str] = IDLE, *, cpu: str = str(QUOTA), number: int = 0, **scheduling: Any) -> Run:
        plan = queues.plan(f"{name}-{number}", command, resources={"cpu": cpu}, scheduling={"queue": queue, **scheduling})
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
    until(lambda: "waits in queue `open` at position 1" in second.status().headline)
    waits = second.status()
    assert second.snapshot().job.phase is JobPhase.SUSPENDED
    assert "insufficient unused quota" in waits.headline
    first.stop()
    assert second.wait(timeout=120) is JobPhase.SUCCEEDED
    (workload,) = [event for event in second.events() if isinstance(event, WorkloadStatus)]
    assert workload.admitted
    assert workload.queue == "open"
    second.stop()


def test_trainjob_is_preempted_and_goes_on_in_the_same_launch(queues: Space, submit: Callable[..., Run], tmp_path: Path):
    script("trainer", "up")
    spec = {
        "name": "patient",
        "target": "trainjob",
        "image": queues.facts.image,
        "launcher": "python",
        "command": ["python3", "-u", "-c", PROGRAM],
        "env": {"FOLDER": f"{queues.name}-patient"},
        "resources": {"cpu": str(QUOTA)},
        "scheduling": {"queue": "shared"},
        "pod": {"grace": 1},
        "volumes": [{"name": "data", "host_path": "/run/kfjob/shared", "mount_path": "/data"}],
    }
    patient = kfjob.submit(spec, settings=Settings(state=tmp_path, backend="kubernetes", namespace=queues.name))
    until(lambda: any((SHARED / f"{queues.name}-patient").glob("step-*")))
    urgent = submit("shared", number=1, queue_priority=f"{queues.name}-urgent")
    until(lambda: patient.snapshot().job.phase is JobPhase.SUSPENDED)
    until(lambda: "reempted" in patient.status().headline)
    until(lambda: urgent.snapshot().job.phase is JobPhase.RUNNING)
    urgent.stop()
    until(lambda: patient.snapshot().job.phase is JobPhase.RUNNING)
    line = next(event for _, event in patient.follow() if isinstance(event, LogLine))
    assert "Resume step-" in line.text
    assert patient.snapshot().launch == patient.launch
    patient.stop()


def test_pods_are_placed_by_the_topology_of_the_cluster(queues: Space, submit: Callable[..., Run]):
    run = submit("racks", topology={"required": HOSTNAME})
    until(lambda: run.snapshot().job.phase is JobPhase.RUNNING)
    label = f"kueue.x-k8s.io/job-uid={run.snapshot().uid}"
    (workload,) = list_objects(queues, "kueue.x-k8s.io/v1beta2", "workloads", labels=label)
    (assignment,) = workload["status"]["admission"]["podSetAssignments"]
    assert assignment["topologyAssignment"]["levels"] == [HOSTNAME]
    run.stop()


def test_job_that_multikueue_runs_elsewhere_says_where(queues: Space, name: str, tmp_path: Path):
    container = {"name": "pytorch", "image": "none"}
    spec = {
        "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"},  # the operator of this cluster makes no pods
        "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [container]}}}},
    }
    metadata = {"name": name, "namespace": queues.name, "labels": {"kueue.x-k8s.io/queue-name": "nobody-made-this"}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}
    (tmp_path / "job.json").write_text(json.dumps(job))
    script("kubectl", "create", "-f", str(tmp_path / "job.json"))
    now = {"status": "True", "message": "", "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}

    def patch(what: str, change: dict[str, Any], *options: str) -> None:
        script("kubectl", "patch", *what.split(), "-n", queues.name, "--type=merge", "-p", json.dumps(change), *options)

    def find_workload() -> str:
        items = list_objects(queues, "kueue.x-k8s.io/v1beta2", "workloads")
        return next(
            (item["metadata"]["name"] for item in items if item["metadata"]["name"].startswith(f"pytorchjob-{name}-")), ""
        )

    until(lambda: bool(find_workload()))
    workload = f"workload {find_workload()}"
    # what the manager of two clusters writes; the workload's webhook checks each step
    reserved = {**now, "type": "QuotaReserved", "reason": "QuotaReserved"}
    admission = {"clusterQueue": f"{queues.name}-open", "podSetAssignments": [{"name": "worker", "count": 2}]}
    nominated = {"admission": admission, "nominatedClusterNames": ["east"], "conditions": [reserved]}
    patch(workload, {"status": nominated}, "--subresource=status")
    admitted = {**now, "type": "Admitted", "reason": "Admitted"}
    chosen = {"clusterName": "east", "nominatedClusterNames": None, "conditions": [reserved, admitted]}
    patch(workload, {"status": chosen}, "--subresource=status")
    patch(f"pytorchjob {name}", {"spec": {"runPolicy": {"suspend": False}}})
    patch(f"pytorchjob {name}", {"status": {"conditions": [{**now, "type": "Running"}]}}, "--subresource=status")
    kfjob = Shell(queues, tmp_path)
    place = "no pods: MultiKueue runs the job in cluster `east`; use the kubeconfig context of that cluster"
    assert place in kfjob("status", name)
    assert kfjob("master", name, code=1) == f"error: no master found for `{name}`: {place}\n"
    assert kfjob("logs", name) == ""
    kfjob("stop", name)
