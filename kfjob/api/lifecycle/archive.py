"""Write a job to the archive: its spec, its last state and every pod's log, in the layout of `backends.folder`."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.reader import JobReader, LiveReader
from kfjob.api.secrets import find_secrets
from kfjob.backends import folder, log_file
from kfjob.backends.base import LogRange
from kfjob.base.concurrency import Task, map_parallel
from kfjob.base.errors import BackendError, KfjobError, NotFound
from kfjob.base.file_access import name_file, open_private
from kfjob.joblog.events import JobSnapshot, LogLine, PodPhase
from kfjob.redaction import LineRedactor, Redactor
from kfjob.redaction.structs import redact_struct

THREADS = 8
"""Logs to fetch at the same time."""
_LOCK = ".archive.lock"
LAST_LINES_SECONDS = 10.0
"""Time that logs have to end after their pods are gone."""


@contextmanager
def archive_job(reader: LiveReader, snapshot: JobSnapshot) -> Iterator[Path]:
    """Write the job to the archive; then, while the caller stops the pods inside the `with`, the lines that they still print.

    Yields the folder of this launch. What cannot be read (a pod that never started has no log) is left out. Of several commands
    that archive a launch, one writes at a time, and none replaces more by less: pods disappear while a job is stopped.
    """
    launch, root = snapshot.launch or snapshot.uid or "unnamed", reader.target.settings.archive_folder
    folder.check_state_folder(root.parent, root.name)
    path = folder.launch_folder(root, snapshot.namespace, snapshot.name, launch)
    with _explaining_write_errors(snapshot.name, path):
        file = open_private(folder.make_private(path) / _LOCK, "ab")
    with file as lock:
        with name_file(path / _LOCK):
            fcntl.flock(lock, fcntl.LOCK_EX)
        with _write_archive(reader, snapshot, path):
            yield path


@contextmanager
def _write_archive(reader: LiveReader, snapshot: JobSnapshot, path: Path) -> Iterator[None]:
    redactor = Redactor(find_secrets(snapshot))
    logs = _LogArchive(reader=reader, path=path, redactor=redactor)
    with _explaining_write_errors(snapshot.name, path):
        end_times = write_job(reader, snapshot, path, redactor)
    tasks = [logs.append(pod.pod, end_times[pod.pod]) for pod in snapshot.pods if pod.phase is PodPhase.RUNNING]
    yield
    deadline = monotonic() + LAST_LINES_SECONDS
    for task in tasks:
        task.join(max(deadline - monotonic(), 0))


def write_job(
    reader: JobReader, snapshot: JobSnapshot, path: Path, redactor: Redactor, *, has_previous: bool = False
) -> dict[str, int | None]:
    """Write the logs, the state and the events of a launch into a folder; return the time of the last line of each pod.

    `has_previous`: pods without restarts may have a log of a previous container too, as in the archive.
    """
    logs = _LogArchive(reader=reader, path=path, redactor=redactor)
    log_names = [
        (pod.pod, previous)
        for pod in snapshot.pods
        for previous in ((False, True) if pod.restarts or has_previous else (False,))
    ]
    end_times = map_parallel(lambda log: logs.write(log[0], previous=log[1]), log_names, threads=THREADS, name="archive")
    folder.write_snapshot(path, redact_messages(keep_pods(snapshot, path), redactor))
    with suppress(KfjobError):  # events only explain; a stop must not fail without them
        events = reader.events()
        if len(events) >= len(folder.read_events(path)):
            folder.write_events(path, [redact_struct(event, redactor) for event in events])
    return {pod: time for (pod, previous), time in zip(log_names, end_times, strict=True) if not previous}


@contextmanager
def _explaining_write_errors(job: str, path: Path) -> Iterator[None]:
    """Raise a BackendError for a disk that cannot be written, before anything is stopped."""
    try:
        yield
    except OSError as err:
        raise BackendError(
            f"job `{job}` cannot be archived, so it was not stopped",
            location=str(path),
            cause=err.strerror or str(err),
            hint="make space there; `kfjob stop --no-archive` stops the job without its logs",
        ) from err


def keep_pods(snapshot: JobSnapshot, path: Path) -> JobSnapshot:
    """Return the snapshot with the pods that only the stored snapshot of the same job has."""
    try:
        stored = folder.read_snapshot(path)
    except KfjobError:
        return snapshot
    names = {pod.pod for pod in snapshot.pods}
    if stored.uid != snapshot.uid:
        return snapshot
    lost = [pod for pod in stored.pods if pod.pod not in names]
    return replace(snapshot, pods=(*snapshot.pods, *lost), store=snapshot.store or stored.store)


def redact_messages(snapshot: JobSnapshot, redactor: Redactor) -> JobSnapshot:
    """Return the snapshot without secrets in the messages of the job and its pods; `relaunch` needs those in the spec."""
    pods = tuple(redact_struct(pod, redactor) for pod in snapshot.pods)
    store = redact_struct(snapshot.store, redactor) if snapshot.store else None
    return replace(snapshot, job=redact_struct(snapshot.job, redactor), pods=pods, store=store)


class _LogArchive(Struct, frozen=True, kw_only=True):
    """Writes the logs of a job, without the secrets in their lines."""

    reader: JobReader
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
            lines = self.reader.logs(pod, log_range)
            first = next(lines, None)
            if first is None:
                return last
            folder.make_private(file.parent)
            written = file if after is not None else file.with_name(f".{file.name}.part")
            redactor = self.redactor.lines()
            if after is None:
                written.unlink(missing_ok=True)  # never through a link that another user has put there
            with open_private(written, "xb" if after is None else "ab") as out:
                for line in chain([first], lines):
                    if isinstance(line, LogLine):
                        out.write(encode_line(line, redactor))
                        last = line.time
            if after is None:
                _replace_smaller(file, written)
        return last


def encode_line(line: LogLine, redactor: LineRedactor) -> bytes:
    """Return a line as a log in the archive has it."""
    time = log_file.format_timestamp(line.time) if line.time is not None else b""
    return time + redactor.line(line.text).encode("utf-8", "replace") + b"\n"


def _replace_smaller(file: Path, written: Path) -> None:
    """Replace a log, unless it has more than the new one."""
    if file.exists() and file.stat().st_size > written.stat().st_size:
        written.unlink()
    else:
        written.replace(file)
