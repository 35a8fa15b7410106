"""Many streams in one bounded queue."""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count, islice, takewhile
from types import FrameType
from typing import Any

import pytest

from kfjob.api.logs.event_stream import EventStream
from kfjob.api.logs.multiplexer import MAX_BYTES, MAX_ITEMS, Multiplexer
from kfjob.backends.base import JobRef, LogRange
from kfjob.backends.fake import FakeBackend
from kfjob.errors import KfjobError, NotFound
from kfjob.events import JobChanged, JobPhase, LogGap, LogLine, PodChanged, PodPhase

MEGABYTE = 1024 * 1024


def settled(count: Callable[[], int], seconds: float = 20.0) -> int:
    """The count, once it has not grown for half a second."""
    deadline = time.monotonic() + seconds
    last, since = count(), time.monotonic()
    while time.monotonic() - since < 0.5:
        assert time.monotonic() < deadline
        if count() != last:
            last, since = count(), time.monotonic()
        threading.Event().wait(0.01)
    return last


def test_every_item_of_every_source_comes_in_the_order_of_its_source():
    multiplexer: Multiplexer[tuple[int, int]] = Multiplexer()
    for source in range(20):
        multiplexer.add([(source, number) for number in range(MAX_ITEMS // 10)], f"{source}")
    seen = [item for item in multiplexer.items() if item is not None]
    assert len(seen) == 20 * (MAX_ITEMS // 10)
    for source in range(20):
        assert [number for which, number in seen if which == source] == list(range(MAX_ITEMS // 10))


def test_a_reader_is_told_that_nothing_comes():
    multiplexer: Multiplexer[int] = Multiplexer()
    go_on = threading.Event()

    def source() -> Iterator[int]:
        go_on.wait(20)
        yield 7

    multiplexer.add(source(), "slow")
    items = multiplexer.items(idle=0.05)
    assert next(items) is None
    go_on.set()
    assert [item for item in items if item is not None] == [7]


def test_faults_of_a_source_reach_the_reader_and_what_is_not_found_does_not():
    def missing() -> Iterator[int]:
        yield 1
        raise NotFound("no log")

    def broken() -> Iterator[int]:
        yield 2
        raise ZeroDivisionError

    multiplexer: Multiplexer[int] = Multiplexer()
    multiplexer.add(missing(), "missing")
    assert list(multiplexer.items()) == [1]
    multiplexer.add(broken(), "broken")
    with pytest.raises(KfjobError, match="reading a stream failed"):
        list(multiplexer.items())


def test_ctrl_c_is_a_keyboard_interrupt_wherever_it_comes_while_the_reader_waits():
    """A signal's handler runs between two lines, in the libraries' too; not at the end of a `with`, where no line begins."""

    def interrupted_at(line: int) -> bool:
        lines, go_on = count(1), threading.Event()

        def trace(frame: FrameType, event: str, _arg: object) -> Callable[..., Any] | None:
            here = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            if event == "line" and not here.lstrip().startswith("with ") and next(lines) == line:
                raise KeyboardInterrupt
            return trace

        def source() -> Iterator[int]:
            go_on.wait(20)
            yield 7

        multiplexer: Multiplexer[int] = Multiplexer()
        multiplexer.add(source(), "slow")
        threading.Timer(0.005, go_on.set).start()
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            next(item for item in multiplexer.items() if item is not None)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            multiplexer.close()  # nobody holds its lock
        return False

    reached = sum(1 for _ in takewhile(interrupted_at, count(1)))
    assert reached > 10


def test_closing_ends_threads_that_wait_for_room():
    ended = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from range(10 * MAX_ITEMS)
        finally:
            ended.set()

    multiplexer: Multiplexer[int] = Multiplexer()
    multiplexer.add(source(), "endless")
    next(multiplexer.items())
    multiplexer.close()
    assert ended.wait(20)


class LongLines(FakeBackend):
    """Pods that print lines of a megabyte without end; how many were asked for is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.printed = 0
        self._lock = threading.Lock()

    def logs(
        self,
        ref: JobRef,  # noqa: ARG002 - part of the protocol
        pod: str,
        log_range: LogRange,  # noqa: ARG002
        *,
        pod_state: PodChanged | None = None,  # noqa: ARG002
    ) -> Iterator[LogLine | LogGap]:
        while True:
            with self._lock:
                self.printed += 1
            yield LogLine(pod=pod, text="x" * MEGABYTE)


def test_memory_is_bounded_while_a_terminal_is_slow():
    backend, pods = LongLines(), 8
    states = [PodChanged(pod=f"a-worker-{number}", phase=PodPhase.RUNNING, uid=f"{number}") for number in range(pods)]
    ref = backend.play("a", JobChanged(phase=JobPhase.RUNNING), *states)
    events = EventStream(backend, ref, lambda _: LogRange(follow=True)).events()
    lines = (event for event in events if isinstance(event, LogLine))
    read = list(islice(lines, 3))  # a terminal that takes so many and then no more
    held = settled(lambda: backend.printed) - len(read)
    lines.close()
    assert held * MEGABYTE <= 2 * MAX_BYTES + (pods + 1) * MEGABYTE
    assert held >= MAX_BYTES // MEGABYTE - pods  # it did read ahead
