"""Follow the logs of several pods as one stream, in the order in which lines arrive."""

from __future__ import annotations

import time
from collections.abc import Iterator

from msgspec.structs import replace

from kfjob.api.excerpts import Line
from kfjob.api.logs.event_stream import EventStream
from kfjob.api.logs.merge import read_logs, select_pods
from kfjob.api.logs.selection import PodSelection
from kfjob.api.master.cache import find_master
from kfjob.api.reader import JobReader, LiveReader
from kfjob.backends.base import LogRange
from kfjob.base.common_types import Notify
from kfjob.base.errors import NoEvidence, NotFound
from kfjob.base.units import SECOND
from kfjob.joblog.events import JobChanged, LogGap, LogLine, PodChanged, PodPhase

SILENT_SECONDS = 10.0
"""Silence of the followed pod after which another pod may print progress."""
MAX_PAUSE_SECONDS = 120.0
"""The longest time between two searches for the printing pod while nothing changes."""
HANDOVER_SECONDS = 60
"""Delay after which a hand-over is noticed at the latest."""


def follow_logs(reader: JobReader, selection: PodSelection, log_range: LogRange) -> Iterator[Line]:
    """Yield the lines of the selected pods as they arrive, also of pods that are created later, until the job has ended.

    Ends earlier when all pods that were selected by name, rank or failure have succeeded, because nothing replaces them.
    """
    if not isinstance(reader, LiveReader) or reader.snapshot().job.phase.ended:
        yield from read_logs(reader, selection, log_range)
        return
    by_name = selection.pods or selection.ranks or selection.failed
    names = {pod.pod for pod in select_pods(reader, selection)} if by_name else set()
    succeeded: set[str] = set()

    def choose_range(pod: PodChanged) -> LogRange | None:
        if names or selection.names_pods:
            return log_range if pod.pod in names or pod.node in selection.nodes else None
        return log_range

    stream = EventStream(reader.target.backend, reader.ref, choose_range)
    for event in stream.events():
        if isinstance(event, LogLine | LogGap):
            yield event
        elif isinstance(event, PodChanged) and event.phase is PodPhase.SUCCEEDED:
            succeeded.add(event.pod)
        if names and names <= succeeded and not names & stream.open_logs:
            return


def follow_master(reader: JobReader, log_range: LogRange, notify: Notify) -> Iterator[Line]:
    """Yield the lines of the pod that prints progress, and after a hand-over those of the next pod, until the job has ended.

    Raises:
        NotFound: the job is gone.
    """
    if not isinstance(reader, LiveReader) or reader.snapshot().job.phase.ended:
        return reader.logs(find_master(reader).pod, log_range)
    return _MasterLog(reader, log_range, notify).lines()


class _MasterLog:
    """Follows one pod at a time, and searches again when that pod is silent or ends, or when the agents rendezvous again."""

    def __init__(self, reader: LiveReader, log_range: LogRange, notify: Notify) -> None:
        self._reader = reader
        self._log_range = log_range
        self._notify = notify
        self._pod = ""
        self._newest: dict[str, int] = {}  # by pod, the time of the newest line that was yielded
        self._last_line = self._last_search = time.monotonic()
        self._pause = 0.0
        self._stream = EventStream(reader.target.backend, reader.ref, lambda pod: log_range if pod.pod == self._pod else None)

    def lines(self) -> Iterator[Line]:
        for event in self._stream.events():
            if isinstance(event, LogLine | LogGap) and event.pod == self._pod:
                yield event
                self._record(event)
            elif isinstance(event, PodChanged) and (not self._pod or event.pod == self._pod):
                self._pause = 0.0  # the pod has changed
            if not (isinstance(event, JobChanged) and event.phase.ended) and self._should_search():
                self._search()

    def _record(self, line: Line) -> None:
        self._last_line = time.monotonic()
        if isinstance(line, LogLine):
            self._newest[line.pod] = line.time or self._newest.get(line.pod, 0)
            if "Rendezvous complete for workers" in line.text:
                self._pause = 0.0

    def _should_search(self) -> bool:
        now = time.monotonic()
        silent = now - self._last_line > SILENT_SECONDS or not self._pod
        return now - self._last_search >= max(self._pause, 1.0) and (silent or self._pause == 0.0)

    def _search(self) -> None:
        self._last_search = time.monotonic()
        first_search = not self._pod and self._pause == 0.0
        self._pause = min(max(self._pause * 2, 2.0), MAX_PAUSE_SECONDS)
        try:
            pod = find_master(self._reader, fresh=True).pod
        except NoEvidence as err:
            if first_search:
                self._notify(f"waiting for the pod that prints progress: {err.title}")
            return
        except NotFound:  # the job is gone, and the watch reports it
            return
        if pod == self._pod:
            return
        self._notify(f"`{pod}` prints progress" + (f", before it `{self._pod}` did" if self._pod else ""))
        self._stream.drop_log(self._pod)
        self._stream.add_log(pod, self._range_after_handover(pod))
        self._pod = pod

    def _range_after_handover(self, pod: str) -> LogRange:
        """Return the range of the next pod's log: from the hand-over on, without lines that were yielded before."""
        if not self._newest:
            return self._log_range
        since = max(max(self._newest.values()) - HANDOVER_SECONDS * SECOND, self._newest.get(pod, 0) + 1)
        return replace(self._log_range, tail=None, since=since)
