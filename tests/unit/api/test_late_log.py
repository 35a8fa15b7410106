"""A follower whose second log comes late: until it is read, no tick says that the view is current."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kfjob.api.logs import event_stream
from kfjob.api.logs.event_stream import EventStream
from kfjob.backends.base import Backend, JobRef, LogRange
from kfjob.joblog.events import JobChanged, JobPhase, LogLine, PodChanged, PodPhase, Tick
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from kfjob.joblog.view.stages import find_stage
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
