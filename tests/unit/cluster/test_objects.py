"""Recorded objects, read as facts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kfjob.cli.view_json import view_json
from kfjob.cli.view_text import status_text
from kfjob.cluster import pods
from kfjob.joblog.events import JobPhase, PodPhase
from kfjob.joblog.view.job_view import JobView
from kfjob.kinds.base import read_conditions
from kfjob.objects.reading import parse_time
from tests.pytorchjobs import KIND, pod_changed, snapshot
from tests.unit.cluster.recordings import read as recorded

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("name", "phase", "reason"),
    [
        ("job-created", JobPhase.PENDING, "PyTorchJobCreated"),
        ("job-running", JobPhase.RUNNING, "PyTorchJobRunning"),
        ("job-succeeded", JobPhase.SUCCEEDED, "PyTorchJobSucceeded"),
        ("job-failed", JobPhase.FAILED, "PyTorchJobFailed"),
    ],
)
def test_a_job(name: str, phase: JobPhase, reason: str):
    job = snapshot(recorded(name), now=7)
    assert (job.job.phase, job.job.reason, job.job.time) == (phase, reason, 7)
    assert job.launch == "1"
    assert job.image.startswith("registry.kfjob.test/kfjob:")
    assert json.loads(job.spec or "")["name"] == job.name
    assert job.job.created is not None
    assert (job.job.ended is not None) == phase.ended
    if job.job.ended:
        assert job.job.ended >= job.job.created


def test_a_job_of_someone_else_just_made():
    job = {
        "metadata": {"name": "theirs", "namespace": "ml", "uid": "u", "creationTimestamp": "2026-11-21T09:33:25Z"},
        "spec": {
            "pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}}
        },
    }
    seen = snapshot(job, now=0)
    assert (seen.job.phase, seen.launch, seen.spec, seen.image, seen.labels) == (JobPhase.PENDING, "", None, "i", {})


def test_only_pods_of_this_very_job_are_its_own():
    job, pod = recorded("job-running"), recorded("pod-running")
    earlier = json.loads(json.dumps(pod))
    earlier["metadata"]["ownerReferences"][0]["uid"] = "the job before"
    assert [one.uid for one in snapshot(job, [earlier, pod], now=0).pods] == [pod["metadata"]["uid"]]


def test_pod_of_a_node_that_does_not_answer():
    """The control plane sets `Ready` to False, and nothing else. So does a kubelet for a readiness gate."""
    pod = recorded("pod-running")
    assert pod_changed(pod, now=0).reason == ""
    for condition in pod["status"]["conditions"]:
        condition["status"] = "False" if condition["type"] == "Ready" else condition["status"]
    state = pod_changed(pod, now=0)
    assert (state.phase, state.reason, state.message) == (
        PodPhase.RUNNING,
        "NodeNotReady",
        "node `kfjob-node` does not answer",
    )
    gated = pod | {"spec": pod["spec"] | {"readinessGates": [{"conditionType": "a.test/b"}]}}
    assert pod_changed(gated, now=0).reason == ""


def test_own_etcd_is_the_store_of_its_job_alone():
    job, pod = recorded("job-running"), recorded("pod-running")
    pod["metadata"] |= {"name": "etcd", "labels": {}}
    pod["spec"]["containers"][0]["name"] = "etcd"
    waiting = {"name": "etcd", "restartCount": 2, "state": {"waiting": {"reason": "ErrImagePull", "message": "no such tag"}}}
    pod["status"] |= {"phase": "Pending", "conditions": [], "containerStatuses": [waiting]}
    store = pods.snapshot(KIND, job, [], store=[pod], now=0).store
    assert store
    assert (store.pod, store.phase, store.reason, store.restarts) == ("etcd", PodPhase.PENDING, "ErrImagePull", 2)
    assert store.container == "etcd"
    view = JobView(job=snapshot(job, now=0).job, store=store)
    assert view.headline == "Running, but `etcd`: ErrImagePull (no such tag)"
    assert "etcd   0/1     ErrImagePull   2" in status_text(view, name="job", now=0)
    assert view_json(view)["store"]["reason"] == "ErrImagePull"
    pod["metadata"]["ownerReferences"][0]["uid"] = "the job before"
    assert pods.snapshot(KIND, job, [], store=[pod], now=0).store is None


ETCD: tuple[dict[str, Any], ...] = (
    {"kind": "Service", "metadata": {"name": "etcd"}, "spec": {"selector": {"app": "e", "tier": "store"}}},
    {"kind": "Deployment", "spec": {"template": {"metadata": {"labels": {"app": "e", "tier": "store"}}}}},
)


@pytest.mark.parametrize(
    ("host", "record", "selector"),
    [
        ("etcd", json.dumps(ETCD), "app=e,tier=store"),
        ("etcd.team.svc", json.dumps(ETCD), "app=e,tier=store"),
        ("other", json.dumps(ETCD), ""),
        ("etcd", json.dumps(ETCD[:1]), ""),  # a Service without the pods: an etcd that others use too
        ("etcd", "[1, {", ""),
        ("", json.dumps(ETCD), ""),
    ],
)
def test_etcd_of_a_template_has_the_selector_of_its_service(host: str, record: str, selector: str):
    job = recorded("job-running")
    job["metadata"]["annotations"] = {"kfjob.dev/manifest": record}
    job["spec"]["elasticPolicy"]["rdzvHost"] = host
    assert KIND.select_template_store(job) == selector
    assert KIND.find_store(job) == ""


def test_newest_pod_of_a_deployment_is_the_store():
    pods_of_etcd = []
    for name, created in (("etcd-a", "2026-11-21T10:00:00Z"), ("etcd-b", "2026-11-21T11:00:00Z")):
        pod = recorded("pod-running")
        pod["metadata"] |= {"name": name, "creationTimestamp": created, "ownerReferences": [{"kind": "ReplicaSet", "uid": "r"}]}
        pods_of_etcd.append(pod)
    store = pods.snapshot(KIND, recorded("job-running"), [], store=pods_of_etcd, now=0).store
    assert store
    assert store.pod == "etcd-b"
    pods_of_etcd[1]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    store = pods.snapshot(KIND, recorded("job-running"), [], store=pods_of_etcd, now=0).store
    assert store
    assert store.pod == "etcd-a"


def test_pods_stand_in_the_order_of_their_index():
    listed = []
    for kind, index in (("worker", 10), ("worker", 2), ("master", 0)):
        pod = recorded("pod-running")
        labels = {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": str(index)}
        pod["metadata"] |= {"name": f"{kind}-{index}", "labels": labels}
        listed.append(pod)
    assert [pod.pod for pod in snapshot(recorded("job-running"), listed, now=0).pods] == ["master-0", "worker-2", "worker-10"]


PHASES = ("Running", "Restarting", "Suspended", "Succeeded", "Failed")


def condition(kind: str, status: str = "True", at: int = 0) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": f"2026-11-21T09:33:{at:02}Z"}


@pytest.mark.parametrize(
    ("conditions", "newest"),
    [
        ([], None),
        ([condition("Created")], "Created"),
        ([condition("Created"), condition("Running"), condition("Restarting", at=1)], "Restarting"),
        ([condition("Created"), condition("Restarting"), condition("Running")], "Running"),
        ([condition("Created"), condition("Running", "False"), condition("Succeeded")], "Succeeded"),
        ([condition("Failed"), condition("Restarting", at=9), condition("Running", at=9)], "Failed"),
        ([condition("Created"), condition("Running", "False"), condition("Suspended", at=3)], "Suspended"),
        ([condition("Created", at=1), condition("Suspended", "False", at=9), condition("Running", at=9)], "Running"),
        ([condition("Created", at=1), condition("SomethingNew", at=9)], "Created"),
    ],
)
def test_the_newest_condition(conditions: list[dict[str, str]], newest: str | None):
    phases = {"Created": JobPhase.PENDING, **{phase: JobPhase(phase) for phase in PHASES}}
    job = {"metadata": {}, "status": {"conditions": conditions}}
    found = read_conditions(job, phases, now=0)
    assert found.phase == (phases[newest] if newest else JobPhase.PENDING)


@pytest.mark.parametrize(
    ("name", "phase", "reason", "exit_code"),
    [
        ("pod-running", PodPhase.RUNNING, "", None),
        ("pod-succeeded", PodPhase.SUCCEEDED, "Completed", 0),
        ("pod-failed", PodPhase.FAILED, "Error", 3),
        ("pod-oom-killed", PodPhase.FAILED, "OOMKilled", 137),
        ("pod-unschedulable", PodPhase.PENDING, "Unschedulable", None),
        ("pod-image-pull-back-off", PodPhase.PENDING, "ImagePullBackOff", None),
        ("pod-crash-loop-back-off", PodPhase.RUNNING, "CrashLoopBackOff", 3),
    ],
)
def test_a_pod(name: str, phase: PodPhase, reason: str, exit_code: int | None):
    pod = pod_changed(recorded(name), now=7)
    assert (pod.phase, pod.reason, pod.exit_code, pod.time) == (phase, reason, exit_code, 7)
    assert pod.uid
    assert pod.created
    began = phase is not PodPhase.PENDING
    assert bool(pod.container_id) == bool(pod.started) == began
    assert pod.ready == (name == "pod-running")
    assert (pod.replica_type, pod.replica_index) == ("Worker", 1 if name == "pod-running" else 0)
    assert bool(pod.ip) == bool(pod.host_ip) == bool(pod.node) == (name != "pod-unschedulable")


def test_a_crash_loop_says_how_the_container_ended():
    pod = pod_changed(recorded("pod-crash-loop-back-off"), now=0)
    assert pod.restarts >= 1
    assert "back-off" in pod.message
    assert "ended before with Error (exit code 3)" in pod.message


def test_a_sidecar_that_does_not_start_is_the_reason():
    """A webhook adds sidecars to `containers`; the kubelet calls the pod Pending as long as one of them waits."""
    pod = recorded("pod-running")
    sidecar = {"name": "istio-proxy", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such tag"}}}
    (training,) = pod["status"]["containerStatuses"]
    pod["status"] |= {"phase": "Pending", "containerStatuses": [training, sidecar]}
    state = pod_changed(pod, now=0)
    assert (state.reason, state.message, state.container) == ("ErrImagePull", "no such tag", "istio-proxy")
    training["state"] = {"waiting": {"reason": "ContainerCreating"}}
    assert pod_changed(pod, now=0).reason == "ErrImagePull"
    training["state"] = {"waiting": {"reason": "ImagePullBackOff"}}
    assert (pod_changed(pod, now=0).reason, pod_changed(pod, now=0).container) == ("ImagePullBackOff", "")


def test_the_most_specific_reason_of_a_waiting_pod_counts():
    pod = recorded("pod-unschedulable")
    assert "Insufficient nvidia.com/gpu" in pod_changed(pod, now=0).message
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T09:33:25Z"
    assert pod_changed(pod, now=0).reason == "Terminating"
    waiting = {"name": "pytorch", "state": {"waiting": {"reason": "PodInitializing"}}}
    init = {"name": "wait-for-etcd", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    pod["status"] |= {"containerStatuses": [waiting], "initContainerStatuses": [init]}
    assert (pod_changed(pod, now=0).reason, pod_changed(pod, now=0).message) == ("ImagePullBackOff", "no such image")
    assert pod_changed(pod, now=0).container == "wait-for-etcd"
    init["state"] = {"terminated": {"reason": "Error", "exitCode": 1, "message": "etcd did not answer"}}
    assert (pod_changed(pod, now=0).reason, pod_changed(pod, now=0).message) == ("Error", "etcd did not answer")
    pod["status"] |= {"reason": "Evicted", "message": "low on memory"}
    assert (pod_changed(pod, now=0).reason, pod_changed(pod, now=0).message) == ("Evicted", "low on memory")


def test_an_unknown_phase_is_no_error():
    pod = recorded("pod-running")
    pod["status"] = {"phase": "Levitating"}
    assert pod_changed(pod, now=0).phase is PodPhase.UNKNOWN


@pytest.mark.parametrize(("text", "time"), [
    (None, None),
    ("", None),
    ("1970-01-01T00:00:01Z", SECOND),
    ("1970-01-01T00:00:01.000001Z", SECOND + 1000),
    ("1970-01-01T02:00:01+02:00", SECOND),
])  # fmt: skip
def test_times(text: str | None, time: int | None):
    assert parse_time(text) == time


def test_which_pods_a_job_will_have_pod():
    job = recorded("job-running")
    assert [KIND.will_have_pod(job, f"running-worker-{index}") for index in range(3)] == [True, True, False]
    assert not KIND.will_have_pod(recorded("job-failed"), "failed-worker-0")
