"""One look at a job: its state, and what the heads and tails of its logs tell, as a JobView."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from msgspec.structs import replace

from kfjob.api.lifecycle.archive import Reader
from kfjob.backends.base import JobRef, LogRange
from kfjob.errors import NotFound, WaitTimeout
from kfjob.events import JobSnapshot, LogGap, LogLine, PodChanged, PodPhase, Tick
from kfjob.observe.config import ObserveConfig
from kfjob.observe.master import Confidence, Master, NoMaster
from kfjob.observe.view import JobView, reduce_all

HEAD_BYTES = 256 * 1024
"""An agent's first rendezvous block stands within the first kilobytes; a library's banner may come before it."""
STAMP_BYTES = 32  # before each line; whether the limit counts them is the backend's affair
TAIL_LINES = 300
TAIL_BYTES = 4 * 1024 * 1024
"""A progress bar that is drawn without line ends makes lines of megabytes."""
AT_ONCE = 16
POLL_SECONDS = 1.0


def look(reader: Reader, ref: JobRef, snapshot: JobSnapshot, config: ObserveConfig, *, previous: bool = False) -> JobView:
    """What is known now. Logs are read from their head and their tail, a bounded number of pods at a time.

    `previous`: those of containers before a restart too.
    """
    view = reduce_all(JobView(config=config), (snapshot.job, *snapshot.pods))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for lines in pool.map(lambda pod: read_pod(reader, ref, pod, previous=previous), snapshot.pods):
            view = reduce_all(view, lines)
    return up_to_now(view)


def up_to_now(view: JobView) -> JobView:
    """The view of a job that runs, as it is at this moment."""
    return reduce_all(view, [Tick(time=time.time_ns())] if view.running else [])


def read_pod(reader: Reader, ref: JobRef, pod: PodChanged, *, previous: bool = False) -> list[LogLine | LogGap]:
    """The head and the tail of a pod's log; with `previous`, before it those of its container before the restart."""
    if pod.phase is PodPhase.PENDING and not pod.restarts:
        return []  # nothing has run: the question would only be refused
    lines = _ends(reader, ref, pod)
    before = _ends(reader, ref, pod, previous=True) if previous else []
    if not before:
        return lines
    # saved logs do not say of which container they are, and these are of two
    return [_of(line, "previous") for line in before] + [line if line.container_id else _of(line, "newest") for line in lines]


def _of(line: LogLine | LogGap, container_id: str) -> LogLine | LogGap:
    return replace(line, container_id=container_id)


def _ends(reader: Reader, ref: JobRef, pod: PodChanged, *, previous: bool = False) -> list[LogLine | LogGap]:
    with suppress(NotFound):
        tail, is_whole = read_tail(reader, ref, pod, previous=previous)
        return tail if is_whole else with_head(reader, ref, pod, tail, previous=previous)
    return []


def read_tail(
    reader: Reader, ref: JobRef, pod: PodChanged, *, lines: int = TAIL_LINES, previous: bool = False
) -> tuple[list[LogLine | LogGap], bool]:
    """The last lines of a pod's log, and whether these are all.

    Raises:
        NotFound: it has no log.
    """
    for count in (lines, 10):
        read: list[LogLine | LogGap] = []
        left = TAIL_BYTES
        for line in text(reader.logs(ref, pod.pod, LogRange(tail=count, previous=previous), pod_state=pod)):
            read.append(line)
            left -= len(line.text)
            if left < 0:
                break
        else:
            break
    return read, len(read) < count and left >= 0


def with_head(
    reader: Reader, ref: JobRef, pod: PodChanged, tail: Sequence[LogLine | LogGap], *, previous: bool = False
) -> list[LogLine | LogGap]:
    """What a pod's log begins with, and then its tail, which was read already; a gap between them where some is left out."""
    first = next((line.time for line in tail if isinstance(line, LogLine)), None)
    head: list[LogLine | LogGap] = []
    size = 0
    for line in text(reader.logs(ref, pod.pod, LogRange(limit_bytes=HEAD_BYTES, previous=previous), pod_state=pod)):
        if first is not None and line.time is not None and line.time >= first:
            return [*head, *tail]
        head.append(line)
        size += len(line.text) + STAMP_BYTES
    if first is None and size < HEAD_BYTES * 3 // 4:
        return head  # lines without times, and this is all of them
    whole = head[:-1]  # the last line may be cut: `group_rank=1` could be the begin of 12
    last = whole[-1].time if whole and isinstance(whole[-1], LogLine) else None
    return [*whole, LogGap(pod=pod.pod, after=last, reason="only the head and the tail were read"), *tail]


def text(lines: Iterable[object]) -> Iterator[LogLine]:
    """Lines without word of those that are lost."""
    return (line for line in lines if isinstance(line, LogLine))


def find_master(ask: Callable[[], JobView], job: str, *, timeout: float = 0.0) -> Master:
    """Who prints progress; `ask` takes a fresh look. With a `timeout` it is asked again until more than a prediction is known.

    Raises:
        NoEvidence: there is no evidence, and no rule that tells.
        WaitTimeout: there is still none after `timeout` seconds, or the job ended without any.
    """
    deadline = time.monotonic() + timeout
    while True:
        view = ask()
        answer = view.master
        if isinstance(answer, Master) and (timeout == 0 or answer.confidence is not Confidence.PREDICTED or not view.running):
            return answer
        if isinstance(answer, NoMaster) and (timeout == 0 or not view.running):
            raise answer.to_error(job)
        if time.monotonic() >= deadline:
            raise WaitTimeout(
                f"no master of `{job}` after {timeout:g} s", cause=view.headline, hint=f"`kfjob status {job}` shows its pods"
            )
        time.sleep(POLL_SECONDS)
