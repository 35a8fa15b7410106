"""A job as a folder holds it: a launch of the archive, or saved logs, also one file or standard input."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from kfjob.backends import bundle, folder, log_file
from kfjob.backends.base import LogRange
from kfjob.backends.saved_logs import find_saved_logs
from kfjob.base.errors import NotFound
from kfjob.joblog.events import (
    END_UNKNOWN,
    TRAINING_CONTAINER,
    JobChanged,
    JobPhase,
    JobSnapshot,
    KubernetesEvent,
    LogGap,
    LogLine,
    PodChanged,
    PodPhase,
    WorkloadStatus,
)


def find_newest_launch(archive: Path, namespace: str, job: str) -> Path:
    """Return the folder of the job's last archived launch.

    Raises:
        NotFound: the archive has no launch of the job.
    """
    folder.check_state_folder(archive.parent, archive.name)
    launches = folder.list_launches(archive, namespace, job)
    if not launches:
        raise NotFound(
            f"no job `{job}` in namespace `{namespace}`, and none in the archive", hint="`kfjob list` shows the jobs"
        )
    return launches[-1]


class ArchivedJob:
    """A job read from files."""

    def __init__(self, path: Path) -> None:
        """Open the folder, a bundle (`.zip`), a log file, or standard input (`-`).

        Raises:
            NotFound: the path holds neither a job nor logs.
            UsageError: the file is not a log.
        """
        self._path = path
        if bundle.is_bundle(path):
            parent = Path(tempfile.mkdtemp(prefix="kfjob-"))
            weakref.finalize(self, shutil.rmtree, parent, ignore_errors=True)
            self._path = bundle.unpack(path, parent)
        self._saved = find_saved_logs(self._path)  # it also keeps the unpacked logs
        self._logs = self._saved.logs
        self._snapshot = self._read_snapshot()
        missing = [pod.pod for pod in self._snapshot.pods if pod.pod not in self._logs] if self._snapshot.observed else []
        self.left_out = (*self._saved.left_out, *(f"the log of pod `{pod}` (not in the archive)" for pod in missing))
        self._containers = {pod.pod: pod.container_id for pod in self._snapshot.pods}

    def snapshot(self) -> JobSnapshot:
        """Return the last state of the job. A folder of logs alone gives its name and the pods that have logs."""
        return self._snapshot

    def events(self) -> list[KubernetesEvent | WorkloadStatus]:
        """Return the events that were archived with the job, oldest first; a folder of saved logs has none."""
        return folder.read_events(self._path)

    def logs(self, pod: str, log_range: LogRange) -> Iterator[LogLine | LogGap]:
        """Return lines of one container's log. `follow` makes no difference, because nothing is added.

        Raises:
            NotFound: the folder has no such log.
        """
        if (path := self._logs.get(pod)) is None:
            raise NotFound(f"no log of pod `{pod}` in `{self._path}`")
        if log_range.container != TRAINING_CONTAINER:
            path = folder.log_path(self._path, pod, log_range.container, previous=log_range.previous)
        elif log_range.previous:
            path = folder.previous_log_path(path)
        container_id = "" if log_range.previous else self._containers.get(pod, "")
        try:
            for time, text in log_file.read_lines(path, log_range):
                yield LogLine(pod=pod, text=text, time=time, container=log_range.container, container_id=container_id)
        except FileNotFoundError as err:
            raise NotFound(f"no log of container `{log_range.container}` of pod `{pod}` in `{self._path}`") from err

    def _read_snapshot(self) -> JobSnapshot:
        try:
            snapshot = folder.read_snapshot(self._path)
        except NotFound:
            pods = tuple(PodChanged(pod=pod, phase=PodPhase.UNKNOWN) for pod in self._logs)
            job = JobChanged(phase=JobPhase.STOPPED, reason=END_UNKNOWN)
            return JobSnapshot(name=self._saved.name, namespace="", job=job, pods=pods)
        job = snapshot.job
        if job.phase.ended or snapshot.observed:
            return snapshot
        return replace(snapshot, job=replace(job, phase=JobPhase.STOPPED, ended=job.ended or job.time))
