from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from kfjob.backends.base import JobRef
from kfjob.base.errors import BackendError, Forbidden
from kfjob.base.http import ConnectionLost
from kfjob.cluster import requests
from kfjob.cluster.backend import KubernetesBackend
from kfjob.cluster.client import Client
from kfjob.cluster.pods import snapshot
from kfjob.cluster.requests import Request
from kfjob.cluster.watch import ItemChange, JobState, ListedObjects, ObjectWatch
from kfjob.joblog.events import JobChanged, JobPhase, PodChanged, PodPhase, StateEvent, StoreChanged
from kfjob.kinds.registry import find_kind
from tests.fakes.transport import FakeStream, FakeTransport, refused, reply
from tests.hostile_server import Answer, HostileServer, Received, json_answer, refusal, serve, wait_until
from tests.pytorchjobs import KIND
from tests.unit.cluster.test_client import connect

RESET = ConnectionLost("connection reset")


def job(condition: str = "Created", uid: str = "job-1", version: str = "1") -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True"}]
    return {
        "metadata": {"name": "llama", "namespace": "ml", "uid": uid, "resourceVersion": version},
        "status": {"conditions": conditions},
    }


def pod(index: int = 0, phase: str = "Running", uid: str = "", owner: str = "job-1", version: str = "1") -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"llama-worker-{index}",
            "uid": uid or f"pod-{index}",
            "resourceVersion": version,
            "ownerReferences": [{"kind": "PyTorchJob", "uid": owner}],
        },
        "status": {"phase": phase},
    }


def told(events: Sequence[StateEvent]) -> list[tuple[str, str]]:
    return [tell(event) for event in events]


def tell(event: StateEvent) -> tuple[str, str]:
    match event:
        case JobChanged():
            return "", event.phase.value
        case PodChanged():
            return event.pod[-1], event.phase.value
        case StoreChanged(state=state):
            return state.pod, state.reason or state.phase.value


def jobs(*things: dict[str, Any]) -> ListedObjects:
    return ListedObjects("pytorchjobs", [*things])


def pods(*things: dict[str, Any]) -> ListedObjects:
    return ListedObjects("pods", [*things])


def changed(thing: dict[str, Any], *, deleted: bool = False) -> ItemChange:
    return ItemChange("pods" if "worker" in thing["metadata"]["name"] else "pytorchjobs", thing, deleted)


@pytest.mark.parametrize(
    ("changes", "events"),
    [
        ([jobs(job()), jobs(job()), changed(job())], [("", "Pending")]),
        ([jobs(job()), changed(job("Running"))], [("", "Pending"), ("", "Running")]),
        ([jobs(job()), changed(job(), deleted=True)], [("", "Pending"), ("", "Stopped")]),
        ([jobs()], [("", "Stopped")]),
        ([jobs(job(uid="a later one"))], [("", "Stopped")]),
        ([jobs(job()), changed(job(uid="a later one"))], [("", "Pending"), ("", "Stopped")]),
        (
            [jobs(job()), changed(job(uid="an earlier one"), deleted=True), changed(job("Running"))],
            [("", "Pending"), ("", "Running")],
        ),
        ([pods(pod(0), pod(1)), pods(pod(1))], [("0", "Running"), ("1", "Running"), ("0", "Deleted")]),
        ([pods(pod(0)), changed(pod(0)), changed(pod(0, "Failed"))], [("0", "Running"), ("0", "Failed")]),
        ([pods(pod(0)), changed(pod(0), deleted=True)], [("0", "Running"), ("0", "Deleted")]),
        ([pods(pod(0, uid="a")), changed(pod(0, uid="b"))], [("0", "Running"), ("0", "Deleted"), ("0", "Running")]),
        ([changed(pod(0, uid="b")), changed(pod(0, uid="a"), deleted=True)], [("0", "Running")]),
        ([pods(pod(0, owner="the job before")), changed(pod(1, owner="a later one"))], []),
        ([changed(pod(0), deleted=True)], []),
    ],
)
def test_changes_become_events(changes: list[ListedObjects | ItemChange], events: list[tuple[str, str]]):
    state = JobState(KIND, "job-1")
    assert told([event for now, change in enumerate(changes) for event in state.take(change, now=now)]) == events


def test_trainjob_runs_as_soon_as_one_of_its_pods_does():  # Trainer waits until all pods of an elastic job are ready
    kind = find_kind("TrainJob")
    state = JobState(kind, "job-1", "train")
    job = {"metadata": {"name": "train", "uid": "job-1", "creationTimestamp": "2026-11-21T08:30:00Z"}, "spec": {}}
    labels = {"jobset.sigs.k8s.io/jobset-name": "train", "batch.kubernetes.io/job-completion-index": "0"}

    def pod(phase: str) -> ItemChange:
        metadata = {"name": "train-node-0-0-abcde", "uid": "pod-1", "labels": labels}
        return ItemChange("pods", {"metadata": metadata, "spec": {}, "status": {"phase": phase}}, deleted=False)

    assert told(state.take(ListedObjects(kind.resource, [job]), now=1)) == [("", "Pending")]
    assert told(state.take(pod("Pending"), now=2)) == [("e", "Pending")]
    assert told(state.take(pod("Running"), now=3)) == [("e", "Running"), ("", "Running")]
    assert not state.take(ListedObjects(kind.resource, [job]), now=4)
    assert snapshot(kind, job, [pod("Running").item], now=5).job.phase is JobPhase.RUNNING
    assert snapshot(kind, job, [pod("Pending").item], now=5).job.phase is JobPhase.PENDING


def event(kind: str, thing: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def gone() -> dict[str, Any]:
    return {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


def feed(*answers: FakeStream | ConnectionLost) -> tuple[ObjectWatch, FakeTransport]:
    """A feed that is closed when the answers are used up."""
    left = list(answers)
    made: list[ObjectWatch] = []

    def answer(_: Request) -> FakeStream | ConnectionLost:
        if len(left) == 1:
            made[0].close()
        return left.pop(0)

    transport = FakeTransport(answer)
    client = Client(transport, host="https://cluster")
    client.pause = lambda seconds: True  # type: ignore[method-assign]  # noqa: ARG005 - no test waits
    made.append(ObjectWatch(client, requests.select_dependents(KIND, "pods", "ml", "llama")))
    return made[0], transport


def listing(*things: dict[str, Any], version: str = "10") -> FakeStream:
    return reply({"metadata": {"resourceVersion": version}, "items": [*things]})


def test_a_watch_goes_on_after_every_kind_of_end():
    end = FakeStream()
    feeding, transport = feed(
        listing(pod(0)),
        FakeStream(pieces=[event("ADDED", pod(1, version="11"))]),  # the server's time limit
        FakeStream(pieces=[event("MODIFIED", pod(1, "Failed", version="12"))[:30], RESET]),  # within an event
        FakeStream(pieces=[event("BOOKMARK", pod(version="20"))]),
        RESET,
        refused(503, "ServiceUnavailable", "starting"),
        FakeStream(pieces=[event("ERROR", gone())]),  # too old: list again
        listing(pod(1), version="30"),
        refused(410, "Expired", "too old resource version"),
        listing(version="40"),
        FakeStream(pieces=[event("DELETED", pod(1, version="41"))[:-1]]),  # a last event without its line feed
        end,
    )
    seen = list(feeding.changes())
    kinds = ["list" if isinstance(one, ListedObjects) else "gone" if one.deleted else "there" for one in seen]
    assert kinds == ["list", "there", "list", "list", "gone"]
    versions = [dict(request.query).get("resourceVersion") for request in transport.requests]
    assert versions == [None, "10", "11", "11", "20", "20", "20", None, "30", None, "40", "41"]
    assert end.closed


def test_a_missing_permission_ends_the_watch():
    message = 'pods is forbidden: User "me" cannot watch resource "pods" in API group "" in the namespace "ml"'
    feeding, _ = feed(listing(), refused(403, "Forbidden", message), FakeStream())
    with pytest.raises(Forbidden, match="not allowed to watch pods"):
        list(feeding.changes())


class Cluster:
    """Two kinds of objects; watches wait until the test lets something happen, or the stream is shut."""

    def __init__(self, *, job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        self.there: dict[str, list[dict[str, Any]]] = {"pytorchjobs": [job], "pods": pods}
        self.streams: list[Waiting] = []
        self.ready: dict[str, list[bytes]] = {"pytorchjobs": [], "pods": []}

    def answer(self, request: Request) -> Any:
        if request.verb == "list":
            return listing(*self.there[request.resource])
        stream = Waiting(self.ready[request.resource])
        self.streams.append(stream)
        return stream

    def happen(self, kind: str, thing: dict[str, Any]) -> None:
        """In the watch that is or will be open."""
        self.ready[changed(thing).resource].append(event(kind, thing))
        for stream in self.streams:
            stream.wake()

    def backend(self) -> KubernetesBackend:
        return KubernetesBackend(Client(FakeTransport(self.answer), host="https://cluster"))


class Waiting:
    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __init__(self, pieces: list[bytes]) -> None:
        self.shut_down = self.closed = False
        self._pieces = pieces
        self._changed = threading.Condition()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def chunks(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pieces or self.shut_down)
                if self.shut_down:
                    return
                piece = self._pieces.pop(0)
            yield piece

    def shut(self) -> None:
        self.shut_down = True
        self.wake()

    def close(self) -> None:
        self.closed = True


REF = JobRef(backend="kubernetes", namespace="ml", name="llama", uid="job-1")


def test_pods_end_before_their_job():
    cluster = Cluster(job=job(), pods=[pod(0, "Pending")])
    watching = cluster.backend().watch(REF)
    assert told([next(watching), next(watching)]) == [("", "Pending"), ("0", "Pending")]
    cluster.happen("MODIFIED", pod(0, version="11"))
    assert told([next(watching)]) == [("0", "Running")]
    cluster.there["pods"] = [pod(0, "Succeeded")]
    cluster.happen("MODIFIED", job("Succeeded", version="12"))
    assert told(list(watching)) == [("0", "Succeeded"), ("", "Succeeded")]
    wait_until(lambda: all(stream.closed for stream in cluster.streams))


def test_an_ended_job_is_reported_with_its_pods():
    cluster = Cluster(job=job("Failed"), pods=[pod(0, "Failed")])
    assert told(list(cluster.backend().watch(REF))) == [("0", "Failed"), ("", "Failed")]
    assert cluster.streams == []


def test_an_abandoned_watch_closes_its_streams():
    cluster = Cluster(job=job(), pods=[])
    with contextlib.closing(cluster.backend().watch(REF)) as watching:  # type: ignore[type-var]
        assert tell(next(watching)) == ("", "Pending")
        cluster.happen("MODIFIED", job("Running", version="11"))
        assert tell(next(watching)) == ("", "Running")
        wait_until(lambda: len(cluster.streams) == 2)
    wait_until(lambda: all(stream.closed for stream in cluster.streams))


def etcd(reason: str, owner: str = "job-1") -> dict[str, Any]:
    status = {"name": "etcd", "state": {"waiting": {"reason": reason, "message": "no such tag"}}}
    made = pod(owner=owner) | {"status": {"phase": "Pending", "containerStatuses": [status]}}
    made["metadata"] |= {"name": "llama-etcd", "uid": "pod-etcd"}
    return made


def test_own_etcd_is_watched_and_is_no_pod_of_the_job():
    state = JobState(KIND, "job-1")
    changes: list[ListedObjects | ItemChange] = [
        pods(pod(0)),
        ListedObjects("pods", [etcd("ErrImagePull"), etcd("Other", owner="the job before")], "llama-etcd"),
        ItemChange("pods", etcd("ErrImagePull"), deleted=False, name="llama-etcd"),
        ItemChange("pods", etcd("ImagePullBackOff"), deleted=False, name="llama-etcd"),
        ItemChange("pods", etcd("ImagePullBackOff"), deleted=True, name="llama-etcd"),
    ]
    events = [event for now, change in enumerate(changes) for event in state.take(change, now=now)]
    assert told(events) == [("0", "Running"), ("llama-etcd", "ErrImagePull"), ("llama-etcd", "ImagePullBackOff")]
    assert [event.state.container for event in events if isinstance(event, StoreChanged)] == ["etcd", "etcd"]


def test_a_pod_phase_deleted_keeps_what_was_known():
    state = JobState(KIND, "job-1")
    state.take(pods(pod(0)), now=1)
    (last,) = state.take(pods(), now=2)
    assert isinstance(last, PodChanged)
    assert (last.phase, last.uid, last.time) == (PodPhase.DELETED, "pod-0", 2)


HOSTILE: dict[str, list[bytes]] = {
    "cut off": [b'{"type":"MODIFIED","object":{"metadata":'],
    "a list": [b"[]\n"],
    "nothing": [b'{"type":"MODIFIED","object":null}\n'],
    "no name": [b'{"type":"MODIFIED","object":{"metadata":{}}}\n'],
    "a line without an end": [b"x" * 65536] * 400,
    "deep": [b"[" * 100_000 + b"\n"],
    "not UTF-8": [b'{"type":"\xff"}\n'],
    "an error without a code": [b'{"type":"ERROR","object":{}}\n'],
    "another kind": [event("MODIFIED", {"kind": "Secret", "metadata": {"name": "x", "uid": "u", "resourceVersion": "9"}})],
    "an older version": [event("MODIFIED", pod(0, "Running", version="2"))],
    "an unknown event": [event("WEIRD", pod(0, version="11"))],
}


@pytest.mark.parametrize("pieces", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_watch_ends_and_changes_no_state(pieces: list[bytes]):
    watch, transport = feed(listing(pod(0)), FakeStream(pieces=pieces), listing(pod(0)), FakeStream())
    state = JobState(KIND, "job-1")
    events = [event for change in watch.changes() for event in state.take(change, now=0)]
    assert told(events) == [("0", "Running")]
    assert len(transport.requests) >= 2, "the watch goes on"


@pytest.mark.parametrize("place", ["list", "event"])
def test_very_long_resource_version_is_one_error_and_goes_into_no_request(place: str):
    versions: list[str] = []
    long = "9" * 1_000_000

    def answer(request: Request) -> FakeStream:
        versions.append(dict(request.query).get("resourceVersion", ""))
        if request.verb == "list":
            return reply({"metadata": {"resourceVersion": long if place == "list" else "7"}, "items": [job()]})
        event = {"type": "MODIFIED", "object": job(version=long)}
        return FakeStream(pieces=[json.dumps(event).encode() + b"\n"])

    client = Client(FakeTransport(answer), host="https://cluster")
    selection = requests.Selection(resource="pytorchjobs", namespace="ml")
    with pytest.raises(BackendError, match="a resource version of 1000000 characters") as caught:
        list(ObjectWatch(client, selection).changes())
    assert len(str(caught.value)) < 500
    assert max(map(len, versions)) <= 1


GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
BOOKMARK = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "11"}}}
ADDED = {"type": "ADDED", "object": {"kind": "Pod", "metadata": {"name": "p", "uid": "u", "resourceVersion": "11"}}}
WATCHES: dict[str, Answer] = {
    "410": refusal(410, "Expired", "too old resource version"),
    "410 in the stream": json_answer(GONE),
    "500": refusal(500, "InternalError"),
    "429": refusal(429, "TooManyRequests"),
    "ended at once": Answer(body=[]),
    "half an event": Answer(body=[b'{"type": "ADD']),
    "a bookmark and the end": json_answer(BOOKMARK),
    "an event and the end": json_answer(ADDED),
}


@pytest.mark.parametrize("answer", WATCHES.values(), ids=WATCHES)
def test_a_watch_that_always_ends_is_opened_less_and_less_often(answer: Answer):
    """The pauses are counted instead of waited for."""
    pauses: list[float] = []

    def respond(_: HostileServer, received: Received) -> Answer:
        return answer if "watch=true" in received.path else json_answer({"metadata": {"resourceVersion": "10"}, "items": []})

    with serve(respond) as hostile, contextlib.closing(connect(hostile.url)) as client:
        watch = ObjectWatch(client, requests.select_dependents(KIND, "pods", "ml", "llama"))

        def pause(seconds: float) -> bool:
            pauses.append(seconds)
            if len(pauses) == 12:
                watch.close()
            return True

        client.pause = pause  # type: ignore[method-assign]
        list(watch.changes())
    assert len(hostile.received) <= 2 * len(pauses), "no request without a pause"
    assert pauses[-1] >= 5.0, pauses
    assert sum(pauses) > 30.0
