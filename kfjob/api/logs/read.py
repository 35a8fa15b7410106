"""Logs of several pods as one stream: merged by time in a snapshot, in the order of arrival when they are followed."""

from __future__ import annotations

import heapq
import pickle
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfjob.api.logs.event_stream import Following
from kfjob.api.logs.selection import PodSelection, failed_before
from kfjob.backends.base import LogRange
from kfjob.common_types import Notify
from kfjob.errors import NoEvidence, NotFound
from kfjob.events import JobChanged, LogGap, LogLine, PodChanged, PodPhase

if TYPE_CHECKING:
    from kfjob.api.run import Run
    from kfjob.observe.diagnose.diagnosis import Issue

AT_ONCE = 16
"""Logs of a snapshot that are read at the same time; those of more pods are put aside on disk and merged from there."""
BATCH = 100
"""Lines of each pod that are in memory while a merge reads them from disk."""
AROUND = (10, 25)
"""Lines before and after an error that are shown with it."""
SILENT_SECONDS = 10.0
"""A followed printer that is silent for so long may have handed over."""
MOST_SECONDS = 120.0
"""Between two questions who prints, while nothing changes."""
MEETING_SECONDS = 60
"""A hand-over is noticed that much later than it began, at most."""
SECOND = 1_000_000_000

Line = LogLine | LogGap


def chosen(run: Run, choice: PodSelection) -> tuple[PodChanged, ...]:
    """The pods that are meant, of those that there are now.

    Raises:
        NotFound: a pod, node or rank that was named is not one of the job's.
    """
    view = run.view() if choice.ranks else None
    return choice.of(run.snapshot().pods, view)


def read(run: Run, choice: PodSelection, wanted: LogRange) -> Iterator[Line]:
    """The lines that are there now, merged by time. Of a pod that failed and runs again, with `failed` those of its failure.

    Raises:
        NotFound: a pod, node or rank is not one of the job's; or one pod was named and it has no log.
    """
    pods = chosen(run, choice)
    ranges = [(pod.pod, replace(wanted, previous=wanted.previous or (choice.failed and failed_before(pod)))) for pod in pods]
    if len(ranges) == 1:
        return run.logs(*ranges[0])
    missing: dict[str, NotFound] = {}
    return _or_missing(merged(run, ranges, missing), [pod for pod, _ in ranges], missing)


def _or_missing(lines: Iterator[Line], pods: Sequence[str], missing: Mapping[str, NotFound]) -> Iterator[Line]:
    """The lines; where no pod has such a log, that is said as it would be of one pod."""
    yield from lines
    if pods and len(missing) == len(pods):
        raise missing[pods[0]]


def merged(run: Run, ranges: Sequence[tuple[str, LogRange]], missing: dict[str, NotFound] | None = None) -> Iterator[Line]:
    """Parts of the logs of several pods as they are now, by time. A pod that has no log (yet) is passed over.

    Why it has none is put into `missing`.
    """
    streams = [_in_order(run, pod, part, {} if missing is None else missing) for pod, part in ranges]
    return _merged(streams) if len(streams) <= AT_ONCE else _merged_from_disk(streams)


def follow(run: Run, choice: PodSelection, wanted: LogRange) -> Iterator[Line]:
    """The lines of these pods as they come, of pods that are made later or anew too, until the job has ended.

    Also ends when all pods that were named have succeeded: nothing will run in their place.
    """
    if run.kept or run.snapshot().job.phase.ended:
        yield from read(run, choice, wanted)
        return
    names = {pod.pod for pod in chosen(run, choice)} if choice.pods or choice.ranks or choice.failed else set()
    done: set[str] = set()

    def part(pod: PodChanged) -> LogRange | None:
        if names or choice.named:
            return wanted if pod.pod in names or pod.node in choice.nodes else None
        return wanted

    following = Following(run.target.backend, run.ref, part)
    for event in following.events():
        if isinstance(event, LogLine | LogGap):
            yield event
        elif isinstance(event, PodChanged) and event.phase is PodPhase.SUCCEEDED:
            done.add(event.pod)
        if names and names <= done and not names & following.open:
            return


def follow_master(run: Run, wanted: LogRange, notify: Notify) -> Iterator[Line]:
    """The lines of the pod that prints progress, and after a hand-over those of the next, until the job has ended.

    Raises:
        NotFound: the job is gone.
    """
    return _MasterLog(run, wanted, notify).lines()


def around(run: Run, finding: Issue, wanted: LogRange) -> Iterator[Line]:
    """The lines around the place where a fault was seen first.

    Raises:
        NoEvidence: it was told by a pod's state and not in a log.
    """
    if finding.line is None:
        cause = finding.title
        raise NoEvidence("the first error stands in no log", cause=cause, hint=f"`kfjob diagnose {run.name}` tells it")
    before, after = AROUND
    lines = run.logs(finding.pod, replace(wanted, previous=finding.previous))
    text = (line for line in lines if isinstance(line, LogLine))
    yield from islice(text, max(finding.line - 1 - before, 0), finding.line + after)


class _MasterLog:
    """Follows one pod at a time; who that is is asked again when it is silent, ends, or its agents meet anew."""

    def __init__(self, run: Run, wanted: LogRange, notify: Notify) -> None:
        self._run = run
        self._wanted = wanted
        self._notice = notify
        self._printer = ""
        self._shown: dict[str, int] = {}  # by pod, the time of the newest line that was shown
        self._heard = self._asked = time.monotonic()
        self._pause = 0.0
        self._following = Following(run.target.backend, run.ref, lambda pod: wanted if pod.pod == self._printer else None)

    def lines(self) -> Iterator[Line]:
        if self._run.kept or self._run.snapshot().job.phase.ended:
            yield from self._run.logs(self._run.master().pod, self._wanted)
            return
        for event in self._following.events():
            if isinstance(event, LogLine | LogGap) and event.pod == self._printer:
                yield event
                self._hear(event)
            elif isinstance(event, PodChanged) and (not self._printer or event.pod == self._printer):
                self._pause = 0.0  # something has changed
            if not (isinstance(event, JobChanged) and event.phase.ended) and self._is_time():
                self._ask()

    def _hear(self, line: Line) -> None:
        self._heard = time.monotonic()
        if isinstance(line, LogLine):
            self._shown[line.pod] = line.time or self._shown.get(line.pod, 0)
            if "Rendezvous complete for workers" in line.text:
                self._pause = 0.0

    def _is_time(self) -> bool:
        now = time.monotonic()
        ignore_notice = now - self._heard > SILENT_SECONDS or not self._printer
        return now - self._asked >= max(self._pause, 1.0) and (ignore_notice or self._pause == 0.0)

    def _ask(self) -> None:
        self._asked = time.monotonic()
        self._pause = min(max(self._pause * 2, 2.0), MOST_SECONDS)
        try:
            answer = self._run.master(fresh=True).pod
        except NoEvidence as err:
            if not self._printer and self._pause <= 2.0:  # noqa: PLR2004 - the first time
                self._notice(f"waiting for the pod that prints progress: {err.title}")
            return
        except NotFound:  # the job is gone, and the watch will say so
            return
        if answer == self._printer:
            return
        self._notice(f"`{answer}` prints progress" + (f", before it `{self._printer}` did" if self._printer else ""))
        self._following.leave(self._printer)
        self._following.add(answer, self._from_the_meeting(answer))
        self._printer = answer

    def _from_the_meeting(self, pod: str) -> LogRange:
        """What the next printer has printed since the agents met anew, and was not shown when it printed before."""
        if not self._shown:
            return self._wanted
        since = max(max(self._shown.values()) - MEETING_SECONDS * SECOND, self._shown.get(pod, 0) + 1)
        return replace(self._wanted, tail=None, since=since)


def _in_order(run: Run, pod: str, wanted: LogRange, missing: dict[str, NotFound]) -> Iterator[tuple[int, Line]]:
    """Lines with a time that never falls: a line without one has that of the line before it."""
    last = 0
    try:
        for line in run.logs(pod, wanted):
            time_ns = line.time if isinstance(line, LogLine) else line.after
            last = max(last, time_ns or 0)
            yield last, line
    except NotFound as err:  # a pod that has not started has no log
        missing[pod] = err


def _merged(streams: Sequence[Iterator[tuple[int, Line]]]) -> Iterator[Line]:
    return (line for _, line in heapq.merge(*streams, key=lambda one: one[0]))


def _merged_from_disk(streams: Sequence[Iterator[tuple[int, Line]]]) -> Iterator[Line]:
    """The same with few connections and little memory, and without leaving a server waiting while a terminal is slow."""
    with tempfile.TemporaryDirectory(prefix="kfjob-logs-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        files = [Path(folder) / str(number) for number in range(len(streams))]
        list(pool.map(_put_aside, streams, files))
        yield from _merged([_from_disk(file) for file in files])


def _put_aside(lines: Iterator[tuple[int, Line]], file: Path) -> None:
    with file.open("wb") as out:
        while batch := list(islice(lines, BATCH)):
            pickle.dump(batch, out)


def _from_disk(file: Path) -> Iterator[tuple[int, Line]]:
    """Opened for each batch: there may be more files than a process may have open."""
    place, size = 0, file.stat().st_size
    while place < size:
        with file.open("rb") as lines:
            lines.seek(place)
            batch = pickle.load(lines)  # noqa: S301 - we have written it ourselves, into a folder of our own
            place = lines.tell()
        yield from batch
