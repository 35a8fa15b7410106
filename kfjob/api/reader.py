"""JobReader: what read-only commands need of a job, whether it exists in the backend or only in the archive."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api import recorded_config
from kfjob.api.secrets import find_secrets
from kfjob.api.settings import Settings
from kfjob.api.target import Target, find_job_target
from kfjob.backends.archived_job import ArchivedJob
from kfjob.backends.base import JobRef, LogRange
from kfjob.backends.folder import check_state_folder, is_name, list_launches, read_created
from kfjob.backends.s3_archive import SCHEME, S3Archive
from kfjob.base.common_types import Notify
from kfjob.base.errors import KfjobError, NotFound
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

    def __init__(self, folder: Path, target: Target, *, copy: S3Archive | None = None, place: str = "") -> None:
        """Open the folder; `target` is where the job ran, or where `relaunch` would start it.

        `copy` keeps a folder that was downloaded from `place`.

        Raises:
            NotFound: the folder holds neither a job nor logs.
        """
        self.folder = folder
        self.place = place or str(folder)
        self.copy = copy
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
        launches = find_archived(target, job, notify=notify)
        if not launches:
            raise target.suggest(job, err) from None
        notify(f"`{job}` is gone, this is the archive of its last launch: {launches[-1].place}")
        return launches[-1].open()
    return open_snapshot(target, snapshot, is_new=True)


class ArchivedLaunch(Struct, frozen=True, kw_only=True):
    """A launch in the archive of this machine, or in its copy in S3."""

    path: Path  # of a launch in S3, a temporary folder with its status
    target: Target
    copy: S3Archive | None = None

    @property
    def place(self) -> str:
        """Where it is."""
        return self.copy.locate(self._name) if self.copy else str(self.path)

    @property
    def _name(self) -> str:
        return "/".join(self.path.parts[-3:])

    def open(self) -> ArchiveReader:
        """Return the launch; one in S3 is downloaded.

        Raises:
            KfjobError: it cannot be downloaded or read.
        """
        return _download(self.copy, self._name, self.path, self.target) if self.copy else ArchiveReader(self.path, self.target)


def _download(copy: S3Archive, name: str, folder: Path, target: Target) -> ArchiveReader:
    """Return a launch in S3, which is downloaded into the folder."""
    left_out = copy.download(name, folder)
    reader = ArchiveReader(folder, target, copy=copy, place=copy.locate(name))
    reader.left_out = (*reader.left_out, *left_out)
    return reader


def find_archived(target: Target, job: str, *, notify: Notify) -> list[ArchivedLaunch]:
    """Return the archived launches of a job, oldest first: those of this machine, and others that only S3 has."""
    archive, settings = target.settings.archive_folder, target.settings
    check_state_folder(archive.parent, archive.name)
    found = [ArchivedLaunch(path=path, target=target) for path in list_launches(archive, target.namespace, job)]
    if settings.archive:
        copy, names = S3Archive(settings.archive, profile=settings.aws_profile), {launch.path.name for launch in found}
        try:
            paths = copy.find_launches(target.namespace, job)
        except KfjobError as err:
            notify(f"the archive in S3 is not read: {err.title}{f': {err.cause}' if err.cause else ''}")
            return found
        found += [ArchivedLaunch(path=path, target=target, copy=copy) for path in paths if path.name not in names]
        found.sort(key=lambda launch: read_created(launch.path))
    return found


def open_saved(place: str, settings: Settings) -> ArchiveReader:
    """Open what `--from` names: the address of a launch in S3, or what `open_folder` takes.

    Raises:
        NotFound: there is neither a job nor a log.
        UsageError: the file is not a log, or the address is invalid.
        KfjobError: the launch cannot be downloaded.
    """
    if not place.startswith(SCHEME):
        return open_folder(Path(place), settings)
    copy = S3Archive(place, profile=settings.aws_profile)
    name = copy.address.rpartition("/")[2]
    folder = copy.temporary / (name if is_name(name) else "saved")
    return _download(copy, "", folder, Target(settings, "local", "default"))


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
    if isinstance(reader, ArchiveReader) and (not reader.ref.namespace or reader.folder.is_file() or reader.copy):
        return f"--from {shlex.quote(reader.place)}"
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
