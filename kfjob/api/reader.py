"""JobReader: what read-only commands need of a job, whether it exists in the backend or only in the archive."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from kfjob.api import recorded_config
from kfjob.api.secrets import find_secrets
from kfjob.api.settings import Settings
from kfjob.api.target import Target, find_job_target
from kfjob.backends.archived_job import ArchivedJob, find_newest_launch
from kfjob.backends.base import JobRef, LogRange
from kfjob.base.common_types import Notify
from kfjob.base.errors import NotFound
from kfjob.joblog.diagnose.rule import LogSource
from kfjob.joblog.events import JobSnapshot, KubernetesEvent, LogGap, LogLine, PodChanged, WorkloadStatus
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView

FRESH_SECONDS = 0.5
"""How long the snapshot that found a job answers the first question about it."""


class JobReader(Protocol):
    """Reads one launch of a job."""

    @property
    def target(self) -> Target:
        """Where the job runs, or where `relaunch` would start it."""

    @property
    def ref(self) -> JobRef:
        """The launch that this reads."""

    @property
    def config(self) -> ObserveConfig:
        """What observation needs of the job's spec."""

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets that the recorded spec holds, as far as it was read."""

    @property
    def archived(self) -> bool:
        """Whether the job is gone, so that its state is final."""

    def snapshot(self) -> JobSnapshot:
        """Return the present state of the job and its pods.

        Raises:
            NotFound: the job is gone.
        """

    def events(self) -> list[KubernetesEvent | WorkloadStatus]:
        """Return what the cluster's controllers recorded about the job, oldest first. A cluster keeps it for an hour.

        Raises:
            NotFound: the job is gone.
        """

    def logs(self, pod: str, log_range: LogRange, *, pod_state: PodChanged | None = None) -> Iterator[LogLine | LogGap]:
        """Return lines of one container's log, oldest first. A `pod_state` that was just read saves a request for it.

        Raises:
            NotFound: the pod does not exist, or it has no log.
        """


class LiveReader:
    """Reads a job that exists in a backend."""

    archived = False

    def __init__(
        self,
        target: Target,
        ref: JobRef,
        config: ObserveConfig,
        *,
        secrets: frozenset[str],
        snapshot: JobSnapshot | None = None,
    ) -> None:
        """Read this launch, whose `secrets` are hidden; a `snapshot` that was taken just now answers the first question."""
        self.target = target
        self.ref = ref
        self.config = config
        self._first_snapshot = snapshot
        self._opened = time.monotonic()
        self.secrets = secrets

    def snapshot(self) -> JobSnapshot:
        """Return the present state of the job and its pods; see `JobReader`."""
        snapshot, self._first_snapshot = self._first_snapshot, None
        if snapshot and time.monotonic() - self._opened < FRESH_SECONDS:
            return snapshot
        snapshot = self.target.read_job(self.ref.name)
        check_uid(snapshot, self.ref.uid)
        return snapshot

    def events(self) -> list[KubernetesEvent | WorkloadStatus]:
        """Return the recorded events; see `JobReader`."""
        return self.target.backend.events(self.ref)

    def logs(self, pod: str, log_range: LogRange, *, pod_state: PodChanged | None = None) -> Iterator[LogLine | LogGap]:
        """Return lines of one container's log; see `JobReader`."""
        return self.target.backend.logs(self.ref, pod, log_range, pod_state=pod_state)


class ArchiveReader:
    """Reads a job from a folder: a launch in the archive, or saved logs."""

    archived = True

    def __init__(self, folder: Path, target: Target) -> None:
        """Open the folder; `target` is where the job ran, or where `relaunch` would start it.

        Raises:
            NotFound: the folder holds neither a job nor logs.
        """
        self.folder = folder
        self._job = ArchivedJob(folder)
        self.left_out = self._job.left_out
        self._snapshot = self._job.snapshot()
        self.ref = make_ref(target, self._snapshot)
        self.secrets = find_secrets(self._snapshot)
        self.config = recorded_config.read_observe_config(self._snapshot)
        self.target = target

    def snapshot(self) -> JobSnapshot:
        """Return the last state that the folder holds; see `JobReader`."""
        return self._snapshot

    def events(self) -> list[KubernetesEvent | WorkloadStatus]:
        """Return the recorded events; see `JobReader`."""
        return self._job.events()

    def logs(
        self,
        pod: str,
        log_range: LogRange,
        *,
        pod_state: PodChanged | None = None,  # noqa: ARG002 - a folder needs no request
    ) -> Iterator[LogLine | LogGap]:
        """Return lines of one container's log; see `JobReader`."""
        return self._job.logs(pod, log_range)


def open_job(job: str, settings: Settings, *, notify: Notify) -> LiveReader | ArchiveReader:
    """Open a job: from its backend if it exists there, else from the archive.

    Raises:
        NotFound: neither the backend nor the archive has the job.
    """
    target = find_job_target(job, settings, notify=notify)
    try:
        snapshot = target.read_job(job)
    except NotFound as err:
        try:
            folder = find_newest_launch(settings.archive, target.namespace, job)
        except NotFound:
            raise target.suggest(job, err) from None
        notify(f"`{job}` is gone, this is the archive of its last launch: {folder}")
        return ArchiveReader(folder, target)
    return open_snapshot(target, snapshot, is_new=True)


def open_snapshot(target: Target, snapshot: JobSnapshot, *, is_new: bool = False) -> LiveReader:
    """Open a job that exists in a backend; `is_new`: the snapshot was taken just now, and answers the first question."""
    config, secrets = recorded_config.read_observe_config(snapshot), find_secrets(snapshot)
    ref = make_ref(target, snapshot)
    return LiveReader(target, ref, config, secrets=secrets, snapshot=snapshot if is_new else None)


def open_folder(folder: Path, settings: Settings) -> ArchiveReader:
    """Open a folder of saved logs, a bundle, a log file, standard input (`-`), or the folder of one launch in the archive.

    Raises:
        NotFound: the path does not exist, or holds neither a job nor logs.
        UsageError: the file is not a log.
    """
    return ArchiveReader(folder, Target(settings, "local", "default"))


def name_job(reader: JobReader) -> str:
    """Return what names the job on a command line: its name, or `--from PATH` for saved logs."""
    if isinstance(reader, ArchiveReader) and (not reader.ref.namespace or reader.folder.is_file()):
        return f"--from {shlex.quote(str(reader.folder))}"
    return reader.ref.name


def find_source(reader: JobReader) -> LogSource:
    """Return where the logs come from."""
    if not isinstance(reader, ArchiveReader) or reader.ref.namespace:
        return LogSource.JOB
    return LogSource.STANDARD_INPUT if str(reader.folder) == "-" else LogSource.SAVED


def open_view(reader: JobReader, *, pattern: str | None = None) -> JobView:
    """Return the view of the job before its first event. `pattern` replaces the job's own pattern of progress lines.

    Of saved logs it is unknown where the job ran; they count as those of a cluster.
    """
    config = reader.config if pattern is None else replace(reader.config, progress_pattern=pattern)
    is_local = find_source(reader) is LogSource.JOB and reader.ref.capabilities.runs_on_this_machine
    return JobView(config=config, local=is_local)


def describe_ref(ref: JobRef) -> dict[str, str]:
    """Return which launch this is, for JSON output."""
    return {"name": ref.name, "namespace": ref.namespace, "backend": ref.backend, "launch": ref.launch, "uid": ref.uid}


def check_uid(snapshot: JobSnapshot, uid: str) -> None:
    """Check that the snapshot is of the job with this uid; a uid that is not known passes.

    Raises:
        NotFound: a later job has the name.
    """
    if uid and snapshot.uid and snapshot.uid != uid:
        hint = f'`attach("{snapshot.name}")` and `kfjob status {snapshot.name}` find the later one'
        raise NotFound(f"this launch of job `{snapshot.name}` is gone; a later one has its name", hint=hint)


def read_live(target: Target, job: str, uid: str = "") -> JobSnapshot:
    """Return the live job of a name with its pods; with `uid`, only the job with this uid.

    Raises:
        NotFound: the job does not exist, or a later job has its name.
    """
    try:
        snapshot = target.get_job(job)
    except NotFound as err:
        raise target.suggest(job, err) from None
    check_uid(snapshot, uid)
    return snapshot


def make_ref(target: Target, snapshot: JobSnapshot) -> JobRef:
    """Return the reference to exactly this job, so that a later job with the same name is never touched."""
    return JobRef(
        backend=snapshot.backend or target.name,
        namespace=snapshot.namespace,
        name=snapshot.name,
        uid=snapshot.uid,
        launch=snapshot.launch,
        job_kind=snapshot.job_kind,
    )
