"""Write a job to the archive: its spec, its last state and every pod's log, in the layout of `backends.folder`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import monotonic

from kfjob.api.secrets import find_secrets
from kfjob.backends import folder, log_file
from kfjob.backends.base import Backend, JobRef, LogRange
from kfjob.concurrency import Task, map_parallel
from kfjob.errors import KfjobError, NotFound
from kfjob.events import JobSnapshot, LogLine, PodPhase
from kfjob.redaction import Redactor

THREADS = 8
"""Logs that are fetched at the same time."""
LAST_LINES_SECONDS = 10.0
"""How long the logs may take to end after their pods are gone."""


@contextmanager
def archive_job(backend: Backend, ref: JobRef, snapshot: JobSnapshot, root: Path) -> Iterator[Path]:
    """Write the job to the archive; then, while the caller stops the pods inside the `with`, the lines that they still print.

    Yields the folder of this launch. What cannot be read (a pod that never started has no log) is left out.
    """
    launch = snapshot.launch or snapshot.uid or "unnamed"
    path = folder.make_private(folder.launch_folder(root, snapshot.namespace, snapshot.name, launch))
    logs = _LogArchive(backend=backend, ref=ref, path=path, redactor=Redactor(find_secrets(snapshot)))
    log_names = [(pod, previous) for pod in snapshot.pods for previous in ((False, True) if pod.restarts else (False,))]
    end_times = map_parallel(lambda log: logs.write(log[0].pod, previous=log[1]), log_names, threads=THREADS, name="archive")
    folder.write_snapshot(path, snapshot)
    with suppress(KfjobError):  # events only explain; a stop must not fail without them
        folder.write_events(path, backend.events(ref))
    tasks = [
        logs.append(pod.pod, end_time)
        for (pod, previous), end_time in zip(log_names, end_times, strict=True)
        if pod.phase is PodPhase.RUNNING and not previous
    ]
    yield path
    deadline = monotonic() + LAST_LINES_SECONDS
    for task in tasks:
        task.join(max(deadline - monotonic(), 0))


@dataclass(frozen=True, kw_only=True)
class _LogArchive:
    """Writes the logs of a job, without the secrets in their lines."""

    backend: Backend
    ref: JobRef
    path: Path
    redactor: Redactor

    def append(self, pod: str, after: int | None) -> Task[int | None]:
        """Append in a thread the lines after a time until the pod is gone."""
        return Task(lambda: self.write(pod, after=after), name="archive")

    def write(self, pod: str, *, previous: bool = False, after: int | None = None) -> int | None:
        """Write a log, or with `after` append the lines that follow until the pod is gone; return the time of the last line."""
        file = folder.log_path(self.path, pod, previous=previous)
        log_range = LogRange(previous=previous) if after is None else LogRange(since=after + 1, follow=True)
        last = after
        with suppress(NotFound):
            lines = self.backend.logs(self.ref, pod, log_range)
            first = next(lines, None)
            if first is None:
                return last
            folder.make_private(file.parent)
            with file.open("wb" if after is None else "ab") as out:
                for line in chain([first], lines):
                    if isinstance(line, LogLine):
                        out.write(self._encode(line))
                        last = line.time
        return last

    def _encode(self, line: LogLine) -> bytes:
        time = log_file.format_timestamp(line.time) if line.time is not None else b""
        return time + self.redactor.text(line.text).encode("utf-8", "replace") + b"\n"
