"""Kubernetes events in the event stream of a followed job."""

from __future__ import annotations

import threading

import pytest

from kfjob.api.logs import event_poller
from kfjob.base.errors import Unreachable
from kfjob.joblog.events import JobChanged, JobPhase, KubernetesEvent, LogLine, Tick
from tests.fakes.backend import FakeBackend
from tests.unit.api import script

MOUNT = KubernetesEvent(kind="Pod", name="train-worker-0", reason="FailedMount", warning=True, time=script.START, uid="1")


def test_kubernetes_events_follow_the_current_states_once():
    backend = FakeBackend()
    ref = backend.play("train", *script.FAILED, MOUNT)
    states = [event for event in script.FAILED if not isinstance(event, LogLine)]
    with event_poller.add_cluster_events(iter(states), backend, ref) as events:
        assert list(events) == [*states, MOUNT]


def test_new_kubernetes_events_arrive_while_following(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_poller, "INTERVAL_SECONDS", 0.01)
    backend = FakeBackend()
    ref = backend.play("train", script.job(JobPhase.RUNNING))
    done = threading.Event()

    def run_job():
        yield script.job(JobPhase.RUNNING)
        while not done.is_set():
            yield Tick(time=1)

    with event_poller.add_cluster_events(run_job(), backend, ref) as events:
        assert isinstance(next(events), JobChanged)
        backend.play("train", MOUNT)
        assert next(event for event in events if isinstance(event, KubernetesEvent)) == MOUNT
        done.set()
        assert not [event for event in events if isinstance(event, KubernetesEvent)]


def test_unreachable_events_do_not_stop_the_stream(monkeypatch: pytest.MonkeyPatch):
    backend = FakeBackend()
    ref = backend.play("train", *script.FAILED)

    def refuse(_ref):
        raise Unreachable("no")

    monkeypatch.setattr(backend, "events", refuse)
    with event_poller.add_cluster_events(iter(script.FAILED), backend, ref) as events:
        assert list(events) == list(script.FAILED)
