"""Archive the logs of a job while it runs, so that those of a pod or a node that is lost are there too.

`archive_job` completes what is written here: it replaces no log by a shorter one, and keeps the pods that are gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from msgspec.structs import replace

from kfjob.api.lifecycle.archive import encode_line, keep_pods, redact_messages
from kfjob.api.secrets import find_secrets
from kfjob.backends import folder, log_file
from kfjob.backends.base import LogRange
from kfjob.base.errors import KfjobError
from kfjob.base.file_access import open_private
from kfjob.joblog.events import TRAINING_CONTAINER, Event, JobChanged, JobSnapshot, LogLine, PodChanged
from kfjob.joblog.view.job_view import JobView
from kfjob.redaction import LineRedactor, Redactor

FLUSH_SECONDS = 2.0
"""Longest time that a line waits in memory."""


class RunningArchive:
    """Writes the lines of one launch into its folder of the archive as they come, without secrets."""

    def __init__(self, job: JobSnapshot, root: Path, *, notify: Callable[[str], None]) -> None:
        """Write nothing yet. A disk that cannot be written is said to `notify` once, and ends the writing."""
        self._job = job
        self._root = root
        self._path = folder.launch_folder(root, job.namespace, job.name, job.launch or job.uid)
        self._redactor = Redactor(find_secrets(job))
        self._notify = notify
        self._logs: dict[str, _Log] = {}
        self._next_flush = 0.0
        self._is_open = True

    def add(self, view: JobView, event: Event) -> None:
        """Write what an event says; `view` is the view after it."""
        if not self._is_open:
            return
        try:
            if isinstance(event, LogLine) and event.container == TRAINING_CONTAINER:
                self._add_line(event)
            elif isinstance(event, PodChanged | JobChanged):
                self._write_snapshot(view)
            if time.monotonic() >= self._next_flush:
                self._next_flush = time.monotonic() + FLUSH_SECONDS
                self._write_buffers()
        except (OSError, KfjobError) as err:
            self._give_up(err)

    def flush(self) -> None:
        """Write what waits, before another part of kfjob completes the archive: a later write would repeat lines."""
        try:
            self._write_buffers()
        except OSError as err:
            self._give_up(err)

    def close(self) -> None:
        """Write what waits, and end the writing."""
        self._is_open = False
        for log in self._logs.values():
            try:
                log.file.close()
            except OSError:  # the disk is full
                continue
        self._logs.clear()

    def _write_buffers(self) -> None:
        for log in self._logs.values():
            log.file.flush()

    def _give_up(self, err: OSError | KfjobError) -> None:
        self._notify(f"{self._job.name}: its logs are not archived while it runs: {err}")
        self.close()

    def _add_line(self, line: LogLine) -> None:
        log = self._logs.get(line.pod)
        if log is None or (line.container_id and log.container_id and line.container_id != log.container_id):
            log = self._logs[line.pod] = self._open(line, log)
        log.container_id = log.container_id or line.container_id
        if line.time is None or line.time <= log.newest:  # written by a guard that was replaced
            return
        log.newest = line.time
        log.file.write(encode_line(line, log.redactor))

    def _open(self, line: LogLine, earlier: _Log | None) -> _Log:
        """Open the log of a container, to append to what is there; that of an earlier container becomes its previous log."""
        path = folder.log_path(self._path, line.pod)
        if earlier:
            earlier.file.close()
            folder.keep_as_previous(self._path, [line.pod])
        self._make_folder(path.parent)
        newest = earlier.newest if earlier else _find_newest(path)
        return _Log(open_private(path, "ab"), self._redactor.lines(), newest=newest)

    def _write_snapshot(self, view: JobView) -> None:
        pods = tuple(pod.state for pod in view.pods.sort() if pod.state)
        if view.job and pods:
            self._make_folder(self._path)
            snapshot = replace(self._job, job=view.job, pods=pods)
            snapshot = keep_pods(snapshot, self._path)  # of an earlier guard
            folder.write_snapshot(self._path, redact_messages(snapshot, self._redactor))

    def _make_folder(self, path: Path) -> None:
        folder.check_state_folder(self._root.parent, self._root.name)
        folder.make_private(path)


class _Log:
    """An open log."""

    def __init__(self, file: IO[Any], redactor: LineRedactor, *, newest: int) -> None:
        self.file = file
        self.redactor = redactor
        self.newest = newest  # time of the last line
        self.container_id = ""


def _find_newest(path: Path) -> int:
    """Return the time of the last line of a log; 0 without one."""
    if not path.exists():
        return 0
    return max((moment for moment, _ in log_file.read_lines(path, LogRange(tail=1)) if moment), default=0)
