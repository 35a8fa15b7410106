"""The event stream of a followed job: logs that come late, clocks that jump, and Kubernetes events."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kfjob.api.logs import event_poller, event_stream
from kfjob.api.logs.event_stream import EventStream
from kfjob.backends.base import Backend, JobRef, LogRange
from kfjob.base.errors import Unreachable
from kfjob.base.units import SECOND
from kfjob.joblog.events import JobChanged, JobPhase, KubernetesEvent, LogLine, PodChanged, PodPhase, Tick
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from kfjob.joblog.view.stages import find_stage
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.joblog.test_stages import CONFIG, launch


class SlowBackend:
    """Two running pods; the log of the one that trains comes only after `opens` is set."""

    def __init__(self) -> None:
        self.opens, self.ends = threading.Event(), threading.Event()

    def watch(self, _: JobRef) -> Iterator[JobChanged | PodChanged]:
        yield JobChanged(phase=JobPhase.RUNNING)
        for name in CONFIG.workers:
            yield PodChanged(pod=name, phase=PodPhase.RUNNING)
        self.ends.wait(30)

    def logs(self, _: JobRef, pod: str, log_range: LogRange) -> Iterator[LogLine]:  # noqa: ARG002 - part of the protocol
        if pod == CONFIG.workers[0]:
            yield from cast("list[LogLine]", launch(0))
        else:
            self.opens.wait(30)
            yield script.line(1, "step 1 loss 2.5", 6)
            yield script.line(1, "step 2 loss 2.4", 7)
        self.ends.wait(30)


@pytest.fixture
def backend() -> Iterator[SlowBackend]:
    backend = SlowBackend()
    yield backend
    backend.opens.set()
    backend.ends.set()


def test_stage_is_unknown_until_each_log_was_read(backend: SlowBackend, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_stream, "TICK_SECONDS", 0.05)
    ref = cast("Any", SimpleNamespace(name="job"))
    stream = EventStream(cast("Backend", backend), ref, lambda _: LogRange(follow=True))
    view, ticks, stages = JobView(config=CONFIG), [], set()
    for event in stream.events():
        view = reduce(view, event)
        stages.add(str(find_stage(view)))
        ticks += [event.is_current] if isinstance(event, Tick) else []
        if len(ticks) == 4:
            backend.opens.set()
        if len(ticks) > 4 and view.training.lines:
            break
    assert ticks[:4] == [False] * 4
    assert stages == {""}


def test_log_without_a_line_is_empty_after_a_while(backend: SlowBackend, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_stream, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(event_stream, "FIRST_LINE_SECONDS", 0.2)
    stream = EventStream(cast("Backend", backend), cast("Any", None), lambda _: LogRange(follow=True))
    view = JobView(config=CONFIG)
    for event in stream.events():
        view = reduce(view, event)
        if isinstance(event, Tick) and event.is_current:
            break
    assert str(find_stage(view)) == "rendezvous: 1 of 2 agents have started"


YEAR = 365 * 24 * 3600


class Quiet:
    """A backend on which nothing happens."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def watch(self, _: JobRef) -> Iterator[JobChanged]:
        self.end.wait()
        yield from ()


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
def test_time_of_a_watched_job_goes_on_evenly(monkeypatch: pytest.MonkeyPatch, jump: int):
    monkeypatch.setattr(event_stream, "TICK_SECONDS", 0.01)
    backend: Any = Quiet()
    ref = JobRef(backend="local", namespace="default", name="train", uid="u", launch="l")
    events, real = event_stream.stream_events(backend, ref, logs=False), time.time_ns
    first = next(events)
    monkeypatch.setattr(time, "time_ns", lambda: real() + jump * SECOND)
    second = next(events)
    backend.end.set()
    assert isinstance(first, Tick)
    assert isinstance(second, Tick)
    assert 0 < second.time - first.time < 3600 * SECOND


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
