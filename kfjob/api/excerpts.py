"""The head and the tail of a pod's log: enough for the rendezvous result and the newest progress of a log of any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from kfjob.api.reader import JobReader
from kfjob.backends.base import LogRange
from kfjob.base.errors import NodeUnreachable, NotFound
from kfjob.joblog.events import NODE_NOT_READY, LogGap, LogLine, PodChanged, PodPhase

HEAD_BYTES = 256 * 1024
"""Size of the beginning to read of a log; an agent prints its first rendezvous result within the first kilobytes,
perhaps after a library's banner."""
TIMESTAMP_BYTES = 32
"""Size of the timestamp before a line. It depends on the backend whether its byte limit counts it."""
TAIL_LINES = 300
"""Last lines to read of a log."""
TAIL_BYTES = 4 * 1024 * 1024
"""Size of the end to read of a log; a progress bar without line ends makes lines of megabytes."""

Line = LogLine | LogGap


def read_excerpt(reader: JobReader, pod: PodChanged) -> list[Line | PodChanged]:
    """Return the head and the tail of a pod's log, or the state of a pod whose node does not answer.

    Kubernetes says so only after a while.
    """
    if pod.phase is PodPhase.PENDING and not pod.restarts:
        return []  # nothing has run: the API server would refuse the request
    try:
        return [*_read_head_and_tail(reader, pod)]
    except NodeUnreachable:
        return [replace(pod, reason=pod.reason or NODE_NOT_READY, message=pod.message or "its node does not answer")]
    except NotFound:
        return []


def read_previous_excerpt(reader: JobReader, pod: PodChanged) -> list[Line]:
    """Return the head and the tail of the log of the container before the newest one; read them before the pod's state."""
    if not pod.restarts and not reader.archived:
        return []
    with suppress(NotFound):
        return [mark_previous(line, pod) for line in _read_head_and_tail(reader, pod, previous=True)]
    return []


def mark_previous(line: Line, pod: PodChanged) -> Line:
    """Return a line of the previous container with an id that is not the one of the newest container."""
    if isinstance(line, LogGap) or line.container_id not in {"", pod.container_id}:
        return line
    return replace(line, container_id="previous")


def mark_newest(line: Line | PodChanged) -> Line | PodChanged:
    """Return a line of the newest container with an id, which saved logs do not have."""
    return line if not isinstance(line, LogLine) or line.container_id else replace(line, container_id="newest")


def read_tail(
    reader: JobReader, pod: PodChanged, *, lines: int = TAIL_LINES, previous: bool = False
) -> tuple[list[Line], bool]:
    """Return the last lines of a pod's log, and whether they are the whole log.

    Raises:
        NotFound: the pod has no log.
    """
    for count in (lines, 10):
        tail: list[Line] = []
        budget = TAIL_BYTES
        for line in _text_lines(reader.logs(pod.pod, LogRange(tail=count, previous=previous), pod_state=pod)):
            tail.append(line)
            budget -= len(line.text)
            if budget < 0:
                break
        else:
            break
    return tail, len(tail) < count and budget >= 0


def add_head(reader: JobReader, pod: PodChanged, tail: Sequence[Line], *, previous: bool = False) -> list[Line]:
    """Return the head of a pod's log, a gap where lines are left out, and the tail."""
    tail_start = next((line.time for line in tail if isinstance(line, LogLine)), None)
    head: list[Line] = []
    size = 0
    for line in _text_lines(reader.logs(pod.pod, LogRange(limit_bytes=HEAD_BYTES, previous=previous), pod_state=pod)):
        if tail_start is not None and line.time is not None and line.time >= tail_start:
            return [*head, *tail]
        head.append(line)
        size += len(line.text) + TIMESTAMP_BYTES
    if tail_start is None and size < HEAD_BYTES * 3 // 4:
        return head  # lines without times, and this is the whole log
    complete = head[:-1]  # the byte limit may cut the last line: `group_rank=1` could be the beginning of 12
    head_end = complete[-1].time if complete and isinstance(complete[-1], LogLine) else None
    return [*complete, LogGap(pod=pod.pod, after=head_end, reason="only the head and the tail were read"), *tail]


def _read_head_and_tail(reader: JobReader, pod: PodChanged, *, previous: bool = False) -> list[Line]:
    tail, complete = read_tail(reader, pod, previous=previous)
    return tail if complete else add_head(reader, pod, tail, previous=previous)


def _text_lines(lines: Iterable[Line]) -> Iterator[LogLine]:
    return (line for line in lines if isinstance(line, LogLine))
