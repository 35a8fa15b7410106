"""A clock that goes back, or a year ahead, ends no wait and renews no credential again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kfjob.api.logs import event_stream
from kfjob.backends.base import JobRef
from kfjob.base.units import SECOND
from kfjob.joblog.events import JobChanged, Tick

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
