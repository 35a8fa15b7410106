"""A recorded answer of an API server with any part changed is a result or one error, in everything that reads jobs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfjob.backends.base import JobRef, LogRange
from kfjob.base.errors import KfjobError
from kfjob.cluster.backend import KubernetesBackend
from kfjob.cluster.client import Client
from kfjob.cluster.requests import Request
from tests.fakes.transport import FakeStream, FakeTransport, refused, reply
from tests.unit.changes import change, changes
from tests.unit.cluster import recordings

JOB = recordings.read("job-running")
PODS = [recordings.read(name) for name in recordings.PODS]
for pod in PODS:
    pod["metadata"]["ownerReferences"] = [{"kind": "PyTorchJob", "uid": JOB["metadata"]["uid"]}]
EVENT = {
    "metadata": {"name": "e", "uid": "e1"},
    "involvedObject": {"kind": "PyTorchJob", "name": "j", "uid": JOB["metadata"]["uid"]},
    "reason": "Created",
    "message": "created",
    "type": "Normal",
    "source": {"component": "pytorchjob-controller"},
    "count": 1,
    "firstTimestamp": "2026-11-21T06:37:49Z",
    "lastTimestamp": "2026-11-21T06:37:49Z",
    "series": {"count": 2, "lastObservedTime": "2026-11-21T06:37:49.000000Z"},
}
NODE = {
    "metadata": {"name": "n", "labels": {}},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    "status": {"nodeInfo": {"architecture": "amd64"}, "allocatable": {"cpu": "4"}},
}
REF = JobRef(
    backend="kubernetes",
    namespace=JOB["metadata"]["namespace"],
    name=JOB["metadata"]["name"],
    uid=JOB["metadata"]["uid"],
)
BAD_TEXTS = ("", "x", "2026-13-45T99:99:99Z", "9" * 5000, "\u00b2")
WRONG: tuple[Any, ...] = (None, True, 0, -1, 10**30, 1e300, *BAD_TEXTS, [], [None], {}, {"a": []})


def backend(**replaced: Any) -> KubernetesBackend:
    """Return a backend on a server that sends recorded objects, with some replaced."""
    lists = {"pods": PODS, "pytorchjobs": [JOB], "events": [EVENT], "nodes": [NODE], "services": []}

    def answer(request: Request) -> FakeStream:
        items = replaced.get(request.resource, lists.get(request.resource, []))
        if request.verb == "list":
            return reply({"metadata": {"resourceVersion": "7"}, "items": items})
        if request.verb == "watch":
            events = replaced.get("watch") or [{"type": "MODIFIED", "object": item} for item in items]
            return FakeStream(pieces=[json.dumps(event).encode() + b"\n" for event in events])
        if request.subresource == "log":
            return FakeStream(pieces=[replaced.get("log", b"2026-11-21T06:37:49.000000001Z hello\n")])
        return reply(items[0]) if items else refused(404, "NotFound", "no")

    client = Client(FakeTransport(answer), host="https://cluster")
    pauses = iter(range(3))

    def pause(seconds: float) -> bool:
        if next(pauses, None) is None:
            client.close()
        return not client.closed

    client.pause = pause  # type: ignore[method-assign]
    return KubernetesBackend(client, namespace=REF.namespace)


def use_everything(cluster: KubernetesBackend, pod: str) -> None:
    """Read a job in every way; each way ends with a result or an error of kfjob."""
    ways: list[Callable[[], object]] = [
        lambda: cluster.get(REF.name, namespace=REF.namespace),
        lambda: cluster.get_by_pods(REF.name, namespace=REF.namespace),
        lambda: cluster.pods(REF.name, namespace=REF.namespace),
        lambda: cluster.list(namespace=REF.namespace),
        lambda: cluster.events(REF),
        cluster.node_architectures,
        lambda: list(cluster.logs(REF, pod, LogRange())),
        lambda: list(cluster.logs(REF, pod, LogRange(previous=True))),
        lambda: cluster.stop(REF, timeout=0.0),
        lambda: watch_some(cluster),
    ]
    for way in ways:
        with contextlib.suppress(KfjobError):
            way()


def watch_some(cluster: KubernetesBackend) -> None:
    with contextlib.closing(cluster.watch(REF)) as events:  # type: ignore[type-var]
        for _, _event in zip(range(5), events, strict=False):
            pass


EXAMPLES = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("kind", ["pods", "pytorchjobs", "events", "nodes"])
def test_a_changed_object_is_a_result_or_an_error(kind):
    original = {"pods": PODS[0], "pytorchjobs": JOB, "events": EVENT, "nodes": NODE}[kind]

    @EXAMPLES
    @given(changes(original, WRONG))
    def check(item: Any) -> None:
        cluster = backend(**{kind: [item]})
        try:
            use_everything(cluster, PODS[0]["metadata"]["name"])
        finally:
            cluster.close()

    check()


@settings(max_examples=25)
@given(st.binary(max_size=200))
def test_any_log_is_a_result_or_an_error(text):
    with contextlib.closing(backend(pods=[PODS[0]], log=text)) as cluster, contextlib.suppress(KfjobError):
        list(cluster.logs(REF, PODS[0]["metadata"]["name"], LogRange()))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (("status", "conditions", 0, "type"), r"Expected `str`, got `array` - at `\$.items\[0\].status.conditions\[0\].type`"),
        (("metadata", "uid"), r"at `\$.items\[0\].metadata.uid`"),
        (("spec", "pytorchReplicaSpecs"), r"at `\$.items\[0\].spec.pytorchReplicaSpecs`"),
    ],
)
def test_the_error_names_the_field(field, message):
    with (
        contextlib.closing(backend(pytorchjobs=[change(JOB, field, [])])) as cluster,
        pytest.raises(KfjobError, match=message),
    ):
        cluster.list(namespace=REF.namespace)
