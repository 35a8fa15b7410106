"""Which of a namespace's events are a job's, and what they say."""

from __future__ import annotations

from typing import Any

import pytest

from kfjob.cluster import cluster_events
from kfjob.cluster.client import Client
from kfjob.cluster.cluster_events import EventSelector, kubernetes_event, read_events, workload_status
from kfjob.cluster.requests import Request
from kfjob.joblog.events import KubernetesEvent, WorkloadStatus
from tests.fakes.transport import FakeStream, FakeTransport, reply
from tests.pytorchjobs import KIND

CREATED, LATER, EARLIER = "2026-11-21T12:00:00Z", "2026-11-21T12:00:05Z", "2026-11-21T11:59:59Z"
NOON = 1_795_262_400_000_000_000
SECOND = 1_000_000_000
POD = {"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "ckpt"}}, {"name": "e", "emptyDir": {}}]}
JOB: dict[str, Any] = {
    "metadata": {"name": "train", "uid": "u-1", "creationTimestamp": CREATED},
    "spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": POD}}}},
}


def event(kind: str, name: str, *, uid: str = "", at: str | None = LATER, **more: Any) -> dict[str, Any]:
    about = {"kind": kind, "name": name, "uid": uid}
    return {"metadata": {"uid": "e-1"}, "involvedObject": about, "reason": "R", "lastTimestamp": at, **more}


@pytest.mark.parametrize(("one", "ours"), [
    (event("PyTorchJob", "train", uid="u-1"), True),
    (event("PyTorchJob", "train", uid="u-0"), False),  # the job before
    (event("Pod", "train-worker-0"), True),
    (event("Pod", "train-master-0"), True),
    (event("Pod", "train-worker-0", at=EARLIER), False),
    (event("Pod", "train-worker-0", at=None), True),
    (event("Pod", "train-worker-0", at=CREATED, reason="Killing"), False),  # times are whole seconds: a pod of the job before
    (event("Pod", "train-worker-0", at=CREATED, reason="Scheduled"), True),
    (event("Pod", "train-worker-0", reason="Killing"), True),
    (event("Pod", "train-worker-x"), False),
    (event("Pod", "train-2-worker-0"), False),  # another job, whose name begins alike
    (event("Pod", "train-etcd-5d9c-x2x"), True),
    (event("PersistentVolumeClaim", "ckpt"), True),
    (event("PersistentVolumeClaim", "ckpt", at=EARLIER), True),  # it was made before the job
    (event("PersistentVolumeClaim", "other"), False),
    (event("PodGroup", "train"), True),
    (event("Deployment", "train"), False),
    ({"metadata": {}}, False),
])  # fmt: skip
def test_events_are_selected_by_job(one: dict[str, Any], *, ours: bool):
    assert EventSelector.for_job(KIND, JOB).matches(one) is ours


def test_an_event_with_time_stamps():
    said = kubernetes_event(
        event(
            "Pod",
            "p",
            type="Warning",
            message=" no \n error: forged\u2028hint: x ",
            count=3,
            firstTimestamp=CREATED,
            source={"component": "kubelet"},
        ),
        KIND,
    )
    assert said == KubernetesEvent(
        kind="Pod", name="p", reason="R", message="no error: forged hint: x", warning=True, source="kubelet", count=3,
        first=NOON, time=NOON + 5 * SECOND, uid="e-1",
    )  # fmt: skip


def test_an_event_of_the_newer_kind():
    series = {"count": 4, "lastObservedTime": "2026-11-21T12:00:07.000001Z"}
    raw = event("Pod", "p", at=None, eventTime=LATER, series=series, reportingComponent="default-scheduler", type="Normal")
    said = kubernetes_event(raw, KIND)
    assert (said.source, said.count, said.warning) == ("default-scheduler", 4, False)
    assert (said.first, said.time) == (NOON + 5 * SECOND, NOON + 7 * SECOND + 1000)


def workload(*conditions: tuple[str, str, str, str], **more: Any) -> WorkloadStatus:
    told = [
        {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": LATER}
        for kind, status, reason, message in conditions
    ]
    metadata = {"name": "pytorchjob-train-1", "creationTimestamp": CREATED}
    return workload_status({"metadata": metadata, "spec": {"queueName": "team"}, "status": {"conditions": told, **more}})


WHY = "couldn't assign flavors to pod set worker: insufficient unused quota for nvidia.com/gpu in flavor p5, 8 more needed"
LOST = (("QuotaReserved", "False", "Pending", "m"), ("Admitted", "False", "NoReservation", "m"))


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([("QuotaReserved", "False", "Pending", WHY)], (False, "Pending", WHY)),
        ([("QuotaReserved", "True", "QuotaReserved", "m"), ("Admitted", "True", "Admitted", "m")], (True, "", "")),
        ([*LOST, ("Evicted", "True", "Preempted", "by x")], (False, "Preempted", "by x")),
        ([*LOST, ("Finished", "True", "Succeeded", "m")], (True, "", "")),  # Kueue 0.15 and newer take the quota back
    ],
    ids=["waits for quota", "admitted", "evicted", "finished"],
)
def test_conditions_of_a_workload(conditions: list[tuple[str, str, str, str]], expected: tuple[bool, str, str]):
    status = workload(*conditions)
    assert (status.admitted, status.reason, status.message) == expected
    assert status.time == (NOON if status.admitted else NOON + 5 * SECOND)


def test_a_workload_that_multikueue_sent_to_another_cluster():
    status = workload(("Admitted", "True", "Admitted", "m"), admission={"clusterQueue": "cq"}, clusterName="east")
    assert (status.name, status.queue, status.time) == ("pytorchjob-train-1", "team", NOON)
    assert (status.cluster_queue, status.cluster) == ("cq", "east")


def test_a_workload_without_conditions():
    said = workload_status({"metadata": {"name": "w", "creationTimestamp": CREATED}, "spec": {"active": False}})
    assert said == WorkloadStatus(name="w", reason="Inactive", time=NOON)


QUEUED = {**JOB, "metadata": {**JOB["metadata"], "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "q"}}}


def answering(**answers: FakeStream) -> tuple[Client, FakeTransport]:
    def answer(request: Request) -> FakeStream:
        page = dict(request.query).get("continue", "")
        return answers[f"{request.resource}{page}"]

    transport = FakeTransport(answer)
    return Client(transport, host="test"), transport


def test_events_of_all_pages_are_sorted_by_time():
    client, transport = answering(
        events=reply({"items": [event("Pod", "train-worker-0")], "metadata": {"continue": "2"}}),
        events2=reply({"items": [event("Pod", "train-worker-1", at=CREATED), event("Pod", "other")], "metadata": {}}),
        workloads=reply({"items": [{"metadata": {"name": "w", "creationTimestamp": "2026-11-21T12:00:02Z"}}]}),
    )
    assert [one.name for one in read_events(client, KIND, QUEUED)] == ["train-worker-1", "w", "train-worker-0"]
    assert transport.requests[-1].path == "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"
    assert transport.requests[-1].query == (("labelSelector", "kueue.x-k8s.io/job-uid=u-1"),)


def test_pages_of_events_without_an_end_are_not_all_read(monkeypatch):
    monkeypatch.setattr(cluster_events, "MAX_EVENT_PAGES", 5)
    transport = FakeTransport(lambda _: reply({"metadata": {"continue": "more"}, "items": []}))
    job = {**JOB, "metadata": {**JOB["metadata"], "namespace": "team"}}
    assert read_events(Client(transport, host="test"), KIND, job) == []
    assert len(transport.requests) == 5


def test_forbidden_events_are_left_out_and_an_expired_list_ends():
    no = {"kind": "Status", "reason": "Forbidden", "message": 'User "x" cannot list resource "workloads"'}
    client, _ = answering(
        events=reply({"items": [event("Pod", "train-worker-0")], "metadata": {"continue": "2"}}),
        events2=reply({}, 410),
        workloads=reply(no, 403),
    )
    assert [one.name for one in read_events(client, KIND, QUEUED)] == ["train-worker-0"]
    client, transport = answering(events=reply(no, 403), workloads=reply({}, 404))
    assert read_events(client, KIND, QUEUED) == []
    assert [request.path.split("/")[3] for request in transport.requests[1:]] == ["v1beta2", "v1beta1"]


WORKLOAD = reply({"items": [{"metadata": {"name": "w", "creationTimestamp": CREATED}, "spec": {"queueName": "q"}}]})


def test_older_kueue_is_read_in_its_own_version():
    def answer(request: Request) -> FakeStream:
        if request.resource == "events":
            return reply({"items": []})
        return WORKLOAD if "/v1beta1/" in request.path else reply({}, 404)

    (status,) = read_events(Client(FakeTransport(answer), host="test"), KIND, QUEUED)
    assert isinstance(status, WorkloadStatus)
    assert (status.name, status.queue) == ("w", "q")


@pytest.mark.parametrize(
    ("summary", "position"),
    [
        (reply({"items": [{"metadata": {"name": "v"}}, {"metadata": {"name": "w"}, "positionInClusterQueue": 2}]}), 3),
        (reply({"items": []}), None),
        (reply({}, 403), None),
        (reply({}, 503), None),
        (reply({}, 404), None),
    ],
    ids=["known", "admitted meanwhile", "forbidden", "not served now", "not installed"],
)
def test_position_in_the_queue_is_shown_if_it_is_known(summary: FakeStream, position: int | None):
    client, transport = answering(events=reply({"items": []}), workloads=WORKLOAD, localqueues=summary)
    (status,) = read_events(client, KIND, QUEUED)
    assert transport.requests[-1].path.endswith("/namespaces/team/localqueues/q/pendingworkloads")
    assert isinstance(status, WorkloadStatus)
    assert status.position == position


def test_submitter_without_the_right_learns_why_the_reason_is_unknown():
    no = {"kind": "Status", "reason": "Forbidden", "message": 'User "x" cannot list resource "workloads"'}
    client, _ = answering(events=reply({"items": []}), workloads=reply(no, 403))
    assert read_events(client, KIND, QUEUED) == []  # the job runs
    waiting = {**QUEUED, "spec": {**QUEUED["spec"], "runPolicy": {"suspend": True}}}
    (status,) = read_events(client, KIND, waiting)
    assert isinstance(status, WorkloadStatus)
    assert (status.queue, status.admitted, status.reason) == ("q", False, "Forbidden")
    assert "list workloads in API group kueue.x-k8s.io is not allowed in `team`" in status.message


def test_an_event_about_the_job_itself_says_so():
    assert kubernetes_event(event(KIND.name, "train"), KIND).about_job
    assert not kubernetes_event(event("Pod", "train-worker-0"), KIND).about_job
