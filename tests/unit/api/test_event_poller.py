"""The cluster's words among what happens to a followed job."""

from __future__ import annotations

import threading

import pytest

from kfjob.api.logs import event_poller
from kfjob.backends.fake import FakeBackend
from kfjob.errors import Unreachable
from kfjob.events import JobChanged, JobPhase, KubernetesEvent, LogLine, Tick
from tests.unit.api import script

MOUNT = KubernetesEvent(kind="Pod", name="train-worker-0", reason="FailedMount", warning=True, time=script.START, uid="1")


def test_they_are_told_after_the_present_states_and_once():
    backend = FakeBackend()
    ref = backend.play("train", *script.FAILED, MOUNT)
    states = [event for event in script.FAILED if not isinstance(event, LogLine)]
    with event_poller.add_cluster_events(iter(states), backend, ref) as events:
        assert list(events) == [*states, MOUNT]


def test_what_is_written_down_later_comes_as_it_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_poller, "INTERVAL_SECONDS", 0.01)
    backend = FakeBackend()
    ref = backend.play("train", script.job(JobPhase.RUNNING))
    more = threading.Event()

    def happening():
        yield script.job(JobPhase.RUNNING)
        while not more.is_set():
            yield Tick(time=1)

    with event_poller.add_cluster_events(happening(), backend, ref) as events:
        assert isinstance(next(events), JobChanged)
        backend.play("train", MOUNT)
        assert next(event for event in events if isinstance(event, KubernetesEvent)) == MOUNT
        more.set()
        assert not [event for event in events if isinstance(event, KubernetesEvent)]


def test_a_cluster_that_does_not_tell_is_no_obstacle(monkeypatch: pytest.MonkeyPatch):
    backend = FakeBackend()
    ref = backend.play("train", *script.FAILED)

    def refuse(_ref):
        raise Unreachable("no")

    monkeypatch.setattr(backend, "events", refuse)
    with event_poller.add_cluster_events(iter(script.FAILED), backend, ref) as events:
        assert list(events) == list(script.FAILED)
