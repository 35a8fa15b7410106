"""A pod's log file, followed across the restarts of its process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kfjob.backends import folder, log_file
from kfjob.backends.base import LogRange
from kfjob.base.text import plural
from kfjob.joblog.events import LogGap, LogLine, PodChanged
from kfjob.local.state import read_pod_state, read_state


class FollowedLog:
    """Follows a pod's log across restarts until the pod has ended."""

    def __init__(self, launch: Path, pod: str, log_range: LogRange) -> None:
        self._launch = launch
        self._pod = pod
        self._range = log_range
        self._state: PodChanged | None = None  # at the start of the process whose log is read
        self._is_new_process = True

    def lines(self) -> Iterator[LogLine | LogGap]:
        """Yield the lines as they are written; a gap stands for the logs of restarts that could not be read."""
        path = folder.log_path(self._launch, self._pod, self._range.container)
        for line in log_file.follow_lines(path, self._range, ended=self._has_ended, restarted=self._restarted):
            if self._is_new_process:
                yield from self._start_process()
            yield to_log_line(self._pod, self._range, line, self._state.container_id if self._state else "")

    def _restarted(self) -> None:
        self._is_new_process = True

    def _start_process(self) -> Iterator[LogGap]:
        before, self._state, self._is_new_process = self._state, read_pod_state(self._launch, self._pod), False
        if before and self._state and (missed := self._state.restarts - before.restarts - 1) > 0:
            yield LogGap(
                pod=self._pod,
                container_id=before.container_id,
                reason=f"the process restarted too quickly: {plural(missed, 'log file')} could not be read",
            )

    def _has_ended(self) -> bool:
        if (pod := read_pod_state(self._launch, self._pod)) is not None:
            return pod.phase.ended
        snapshot = read_state(self._launch)
        return snapshot is None or snapshot.job.phase.ended


def to_log_line(pod: str, log_range: LogRange, line: log_file.Line, container_id: str) -> LogLine:
    """Return a line of the file as an event."""
    time_ns, text = line
    return LogLine(pod=pod, text=text, time=time_ns, container=log_range.container, container_id=container_id)
