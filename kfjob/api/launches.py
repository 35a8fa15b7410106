"""The launches of a job, the live one and those in the archive on this machine, and what each has shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from kfjob.api.diagnose import examine
from kfjob.api.reader import ArchiveReader, JobReader, LiveReader, find_archived, open_saved, open_snapshot
from kfjob.api.settings import Settings
from kfjob.api.target import Target, find_job_target
from kfjob.api.view import read_view
from kfjob.backends import folder
from kfjob.base.common_types import Notify
from kfjob.base.concurrency import map_parallel
from kfjob.base.errors import KfjobError, NotFound, UsageError
from kfjob.joblog.diagnose.diagnosis import Issue
from kfjob.joblog.events import JobPhase, JobSnapshot
from kfjob.joblog.progress.milestones import Checkpoint, Resume
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import GIVEN_UP, LIMIT_EXCEEDED, JobView

MARK = "@"
"""Between a job and the number or the id of its launch: `train@2`."""
THREADS = 4


class Launch(Struct, frozen=True, kw_only=True):
    """One launch of a job, live or archived, with what its logs show."""

    number: int
    """Number of the launch, 1 for the oldest of the job that is left."""
    snapshot: JobSnapshot
    """The job and its pods; at the end of the launch, if it has ended."""
    view: JobView
    """What the logs show."""
    first_cause: Issue | None = None
    """The first cause of its failure; None if it has not failed, or nothing explains it."""
    folder: Path | None = None
    """The folder with its logs; None for a live launch on a cluster."""

    @property
    def name(self) -> str:
        """The job with the number of the launch, such as `train@2`; the name of saved logs."""
        return f"{self.snapshot.name}{MARK}{self.number}" if self.number else self.snapshot.name

    @property
    def stop_reason(self) -> str | None:
        """Why kfjob or the guard has stopped it; None if it ended otherwise."""
        job = self.snapshot.job
        return job.message if job.phase is JobPhase.STOPPED and job.reason in {LIMIT_EXCEEDED, GIVEN_UP} else None

    @property
    def launch(self) -> str:
        """The id of the launch."""
        return self.snapshot.launch

    @property
    def phase(self) -> JobPhase:
        """The state of the launch."""
        return self.snapshot.phase

    @property
    def started(self) -> int | None:
        """When it began to run; a launch whose pods never ran has no such time."""
        return self.snapshot.started

    @property
    def ended(self) -> int | None:
        """When it ended, or was stopped."""
        return self.snapshot.ended

    @property
    def progress(self) -> Training:
        """The progress of its training."""
        return self.view.training

    @property
    def resume(self) -> Resume | None:
        """The checkpoint that it resumed from, as kfjob's trainer reports it; None if nothing shows it."""
        return self.view.resume

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Its newest checkpoint, as kfjob's trainer reports it."""
        return self.view.checkpoint

    def __repr__(self) -> str:
        """Return one line: name, state, step and loss."""
        return f"<Launch {self.name} {self.phase} {self.progress!r}>"


class LaunchReader(Struct, frozen=True):
    """One launch that was found, and not read yet."""

    number: int
    reader: JobReader

    def read(self, *, every_line: bool = False) -> Launch:
        """Return the launch; `every_line` gives the whole curve. The logs of a failed one are always read completely.

        Raises:
            NotFound: the launch is gone.
        """
        snapshot, cause = self.reader.snapshot(), None
        if every_line or snapshot.phase is JobPhase.FAILED:
            examined = examine(self.reader)
            view, diagnosis = examined.view, examined.diagnosis
            cause = diagnosis.first_cause if diagnosis.failed and diagnosis.explained else None
        else:
            view = read_view(self.reader)
        return Launch(number=self.number, snapshot=snapshot, view=view, first_cause=cause, folder=self._find_folder())

    def _find_folder(self) -> Path | None:
        if isinstance(self.reader, ArchiveReader):
            return None if self.reader.copy else self.reader.folder
        ref, state = self.reader.ref, self.reader.target.settings.state
        path = folder.launch_folder(state / "local", ref.namespace, ref.name, ref.launch or "unnamed")
        return path if ref.capabilities.runs_on_this_machine and path.is_dir() else None


def find_launches(job: str, settings: Settings, *, notify: Notify) -> list[LaunchReader]:
    """Return the launches of a job that are left, oldest first. An archived launch that cannot be read is left out.

    Raises:
        NotFound: neither the backend nor the archive has the job.
    """
    target = find_job_target(job, settings, notify=notify)
    live, missing = _find_live(target, job)
    readers: list[JobReader] = []
    for launch in find_archived(target, job, notify=notify):
        if live and launch.path.name == live.ref.launch:  # a guard archives it
            continue
        try:
            reader = launch.open()
        except KfjobError as err:
            notify(f"launch `{launch.path.name}` is left out: {err.title}")
            continue
        if live is None or reader.ref.uid != live.ref.uid:
            readers.append(reader)
    readers += [live] if live else []
    if not readers and missing:
        raise target.suggest(job, missing)
    return [LaunchReader(number, reader) for number, reader in enumerate(readers, start=1)]


def _find_live(target: Target, job: str) -> tuple[LiveReader | None, NotFound | None]:
    try:
        snapshot = target.read_job(job)
    except NotFound as err:
        return None, err
    return open_snapshot(target, snapshot), None


def select_launches(jobs: Sequence[str], folders: Sequence[str], settings: Settings, *, notify: Notify) -> list[LaunchReader]:
    """Return one launch for each of `jobs` and of the `folders` with saved logs.

    A job stands for its newest launch, but a job alone for all its launches; `train@2` is its second, `train@ID` that of this
    id, and `train@all` stands for all.

    Raises:
        NotFound: a job, a launch or a folder does not exist.
    """
    if len(jobs) == 1 and not folders and MARK not in jobs[0]:
        return find_launches(jobs[0], settings, notify=notify)
    selected = [launch for job in jobs for launch in _select(job, settings, notify)]
    return [*selected, *(LaunchReader(0, open_saved(path, settings)) for path in folders)]


def _select(word: str, settings: Settings, notify: Notify) -> Iterator[LaunchReader]:
    job, mark, launch = word.partition(MARK)
    launches = find_launches(job, settings, notify=notify)
    matches = [item for item in launches if launch in {str(item.number), item.reader.ref.launch, "all"}]
    if not mark:
        matches = launches[-1:]
    if not matches:
        hint = f"`kfjob history {job}` shows the launches"
        if launch.isdigit():
            raise NotFound(f"job `{job}` has no launch {launch}: it has {len(launches)}", hint=hint)
        raise NotFound(f"job `{job}` has no launch `{launch}`", hint=hint)
    yield from matches


def read_launches(launches: Sequence[LaunchReader], *, every_line: bool = False) -> list[Launch]:
    """Return what the launches have shown; a launch that is removed meanwhile is left out."""

    def read(launch: LaunchReader) -> Launch | None:
        with suppress(NotFound):
            return launch.read(every_line=every_line)
        return None

    read_all = map_parallel(read, launches, threads=THREADS, name="launches")
    return [launch for launch in read_all if launch]


def check_count(launches: Sequence[LaunchReader]) -> None:
    """Check that there is something to compare.

    Raises:
        UsageError: there are fewer than two launches.
    """
    if len(launches) < 2:  # noqa: PLR2004 - a comparison needs two
        hint = (
            "name two jobs, or one with several launches; `JOB@1 JOB@2` are two launches of a job, `JOB@all` all of them, "
            "and `--from PATH` saved logs"
        )
        raise UsageError("there are no two launches to compare", hint=hint)
