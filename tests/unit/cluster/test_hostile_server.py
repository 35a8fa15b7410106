"""Streams of a hostile API server end, and are opened less and less often."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from kfjob.cluster import cluster_events, requests
from kfjob.cluster.client import Client
from kfjob.cluster.watch import ObjectWatch
from tests.hostile_server import Answer, HostileServer, Received, json_answer, refusal, serve
from tests.pytorchjobs import KIND
from tests.unit.cluster.test_client import connect


@contextlib.contextmanager
def server(respond: Callable[[HostileServer, Received], Answer]) -> Iterator[tuple[Client, HostileServer]]:
    with serve(respond) as hostile, contextlib.closing(connect(hostile.url)) as client:
        yield client, hostile


def test_pages_of_events_without_an_end_are_not_all_read(monkeypatch):
    monkeypatch.setattr(cluster_events, "MAX_EVENT_PAGES", 5)
    job = {"metadata": {"name": "llama", "namespace": "ml", "uid": "u"}}
    with server(lambda *_: json_answer({"metadata": {"continue": "more"}, "items": []})) as (client, hostile):
        assert cluster_events.read_events(client, KIND, job) == []
        assert len(hostile.received) == 5


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

    with server(respond) as (client, hostile):
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
