"""Read the logs of several pods as one stream, merged by time."""

from __future__ import annotations

import heapq
import pickle
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path

from msgspec.structs import replace

from kfjob.api.excerpts import Line
from kfjob.api.logs.selection import PodSelection, has_restarted_after_failure
from kfjob.api.reader import JobReader
from kfjob.api.view import read_view
from kfjob.backends.base import LogRange
from kfjob.base.concurrency import map_parallel
from kfjob.base.errors import NoEvidence, NotFound
from kfjob.base.file_access import name_file
from kfjob.joblog.diagnose.diagnosis import Issue
from kfjob.joblog.events import LogLine, PodChanged

THREADS = 16
"""Logs to read at the same time. The logs of more pods are written to disk first and merged from there."""
BATCH = 100
"""Lines of each pod in memory while logs are merged from disk."""
CONTEXT_LINES = (10, 25)
"""Lines to show before and after an error."""

PodRange = tuple[str, LogRange]
"""A pod's name, and the part of its log to read."""


def select_pods(reader: JobReader, selection: PodSelection) -> tuple[PodChanged, ...]:
    """Return the selected pods of those that exist now.

    Raises:
        NotFound: the job has no such pod, node or rank.
    """
    view = read_view(reader) if selection.ranks else None
    return selection.select(reader.snapshot().pods, view)


def read_logs(reader: JobReader, selection: PodSelection, log_range: LogRange) -> Iterator[Line]:
    """Return the lines that exist now, merged by time.

    With `failed`, a pod that failed and runs again gives the log of the container that failed.

    Raises:
        NotFound: the job has no such pod, node or rank; or none of the selected pods has a log.
    """
    ranges = []
    for pod in select_pods(reader, selection):
        previous = log_range.previous or (selection.failed and has_restarted_after_failure(pod))
        ranges.append((pod.pod, replace(log_range, previous=previous)))
    if len(ranges) == 1:
        return reader.logs(*ranges[0])
    return merge_logs(reader, ranges, require=True)


def take_last(lines: Iterable[Line], includes: Callable[[str], bool], count: int) -> list[Line]:
    """Return the last lines of each pod that the filter includes, in their order; gaps before them are left out."""
    last: dict[str, deque[tuple[int, Line]]] = defaultdict(lambda: deque(maxlen=count))
    for number, line in enumerate(lines):
        if isinstance(line, LogLine) and includes(line.text):
            last[line.pod].append((number, line))
    return [line for _, line in sorted((item for pod in last.values() for item in pod), key=itemgetter(0))]


def merge_logs(reader: JobReader, ranges: Sequence[PodRange], *, require: bool = False) -> Iterator[Line]:
    """Return parts of the logs of several pods as they are now, by time. A pod without a log is left out.

    Raises:
        NotFound: with `require`, if no pod has a log.
    """
    logs = [_OrderedLog(reader, pod, log_range) for pod, log_range in ranges]
    yield from _merge(logs) if len(logs) <= THREADS else _merge_from_disk(logs)
    if require and logs and all(log.error for log in logs) and (error := logs[0].error):
        raise error


def read_around(reader: JobReader, issue: Issue, log_range: LogRange) -> Iterator[Line]:
    """Return the lines around the place where a failure was first seen.

    Raises:
        NoEvidence: the state of a pod showed the failure, and no log.
    """
    if issue.line is None:
        hint = f"`kfjob diagnose {reader.ref.name}` shows the state"
        raise NoEvidence("no log contains the first error", cause=issue.title, hint=hint)
    before, after = CONTEXT_LINES
    lines = reader.logs(issue.pod, replace(log_range, previous=issue.previous))
    text = (line for line in lines if isinstance(line, LogLine))
    yield from islice(text, max(issue.line - 1 - before, 0), issue.line + after)


class _OrderedLog:
    """Lines of one log with times that never decrease: a line without a time has that of the line before it."""

    def __init__(self, reader: JobReader, pod: str, log_range: LogRange) -> None:
        self.error: NotFound | None = None  # a pod that has not started has no log
        self._reader, self._pod, self._range = reader, pod, log_range

    def __iter__(self) -> Iterator[tuple[int, Line]]:
        newest = 0
        try:
            for line in self._reader.logs(self._pod, self._range):
                time = line.time if isinstance(line, LogLine) else line.after
                newest = max(newest, time or 0)
                yield newest, line
        except NotFound as err:
            self.error = err


def _merge(logs: Sequence[_OrderedLog | Iterator[tuple[int, Line]]]) -> Iterator[Line]:
    return (line for _, line in heapq.merge(*logs, key=lambda timed: timed[0]))


def _merge_from_disk(logs: Sequence[_OrderedLog]) -> Iterator[Line]:
    """Merge with few connections and little memory, and without making a server wait for a slow terminal."""
    with tempfile.TemporaryDirectory(prefix="kfjob-logs-") as folder:
        files = [Path(folder) / str(number) for number in range(len(logs))]
        map_parallel(lambda pair: _write(*pair), list(zip(logs, files, strict=True)), threads=THREADS, name="logs")
        yield from _merge([_read(file) for file in files])


def _write(log: _OrderedLog, file: Path) -> None:
    lines = iter(log)
    with name_file(file.parent), file.open("wb") as out:
        while batch := list(islice(lines, BATCH)):
            pickle.dump(batch, out)


def _read(file: Path) -> Iterator[tuple[int, Line]]:
    """Open the file for each batch, because there may be more files than a process may hold open."""
    position, size = 0, file.stat().st_size
    while position < size:
        with file.open("rb") as lines:
            lines.seek(position)
            batch = pickle.load(lines)  # noqa: S301 - `_write` made the file, in a private folder
            position = lines.tell()
        yield from batch
