"""Check the multiplexer: many streams in one bounded queue."""

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
from kfjob.base.errors import KfjobError, NotFound
from kfjob.base.units import MIB
from kfjob.joblog.events import JobChanged, JobPhase, LogGap, LogLine, PodChanged, PodPhase
from tests.fakes.backend import FakeBackend


def wait_until_stable(count: Callable[[], int], seconds: float = 20.0) -> int:
    """Return the count after it has not changed for half a second."""
    deadline = time.monotonic() + seconds
    last, since = count(), time.monotonic()
    while time.monotonic() - since < 0.5:
        assert time.monotonic() < deadline
        if count() != last:
            last, since = count(), time.monotonic()
        threading.Event().wait(0.01)
    return last


def test_items_keep_the_order_of_their_source():
    multiplexer: Multiplexer[tuple[int, int]] = Multiplexer()
    for source in range(20):
        multiplexer.add([(source, number) for number in range(MAX_ITEMS // 10)], f"{source}")
    items = [item for item in multiplexer.items() if item is not None]
    assert len(items) == 20 * (MAX_ITEMS // 10)
    for source in range(20):
        assert [number for item_source, number in items if item_source == source] == list(range(MAX_ITEMS // 10))


def test_idle_reader_gets_none():
    multiplexer: Multiplexer[int] = Multiplexer()
    proceed = threading.Event()

    def source() -> Iterator[int]:
        proceed.wait(20)
        yield 7

    multiplexer.add(source(), "slow")
    items = multiplexer.items(idle=0.05)
    assert next(items) is None
    proceed.set()
    assert [item for item in items if item is not None] == [7]


def test_error_of_a_source_is_raised_except_not_found():
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


def test_ctrl_c_is_a_keyboard_interrupt_at_every_line_of_the_reader():
    """A signal handler runs between two lines, also in libraries, but not at the end of a `with`, where no line begins."""

    def interrupt_at(line: int) -> bool:
        lines, proceed = count(1), threading.Event()

        def trace(frame: FrameType, event: str, _arg: object) -> Callable[..., Any] | None:
            source_line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            if event == "line" and not source_line.lstrip().startswith("with ") and next(lines) == line:
                raise KeyboardInterrupt
            return trace

        def source() -> Iterator[int]:
            proceed.wait(20)
            yield 7

        multiplexer: Multiplexer[int] = Multiplexer()
        multiplexer.add(source(), "slow")
        threading.Timer(0.005, proceed.set).start()
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            next(item for item in multiplexer.items() if item is not None)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            multiplexer.close()  # fails if the lock is still buffered
        return False

    interrupts = sum(1 for _ in takewhile(interrupt_at, count(1)))
    assert interrupts > 10


def test_threads_wait_for_space_and_end_with_the_multiplexer():
    ended = threading.Event()
    produced: list[int] = []

    def source() -> Iterator[int]:
        try:
            for number in range(10 * MAX_ITEMS):
                produced.append(number)
                yield number
        finally:
            ended.set()

    multiplexer: Multiplexer[int] = Multiplexer(16)
    multiplexer.add(source(), "endless")
    next(multiplexer.items())
    number = wait_until_stable(lambda: len(produced))
    assert number <= 2 * 16 + 1  # in the queue, taken by the reader with its item, and in the source
    multiplexer.close()
    assert ended.wait(20)


class LongLines(FakeBackend):
    """Pods that print lines of 1 MiB without end, and count them."""

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
            yield LogLine(pod=pod, text="x" * MIB)


def test_memory_is_bounded_while_the_terminal_is_slow():
    backend, pods = LongLines(), 8
    states = [PodChanged(pod=f"a-worker-{number}", phase=PodPhase.RUNNING, uid=f"{number}") for number in range(pods)]
    ref = backend.play("a", JobChanged(phase=JobPhase.RUNNING), *states)
    events = EventStream(backend, ref, lambda _: LogRange(follow=True)).events()
    lines = (event for event in events if isinstance(event, LogLine))
    read = list(islice(lines, 3))  # a terminal that reads three lines and then stops
    buffered = wait_until_stable(lambda: backend.printed) - len(read)
    lines.close()
    assert buffered * MIB <= 2 * MAX_BYTES + (pods + 1) * MIB
    assert buffered >= MAX_BYTES // MIB - pods  # the threads read ahead
