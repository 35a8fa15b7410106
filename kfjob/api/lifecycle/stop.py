"""End a job: archive its logs, remove it, and wait until it is gone."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

from msgspec.structs import replace

from kfjob.api.lifecycle.archive import archive_job
from kfjob.api.reader import make_ref, open_snapshot, read_live
from kfjob.api.settings import STOP_TIMEOUT
from kfjob.api.target import Target
from kfjob.backends import folder
from kfjob.backends.archived_job import find_newest_launch
from kfjob.backends.base import JobRef
from kfjob.base.concurrency import waiting_for
from kfjob.joblog.events import JobChanged, JobSnapshot


def stop(
    target: Target,
    job: str,
    *,
    timeout: float = STOP_TIMEOUT,
    archive_logs: bool = True,
    force: bool = False,
    uid: str = "",
    end: JobChanged | None = None,
) -> Path | None:
    """Remove a job that runs or has ended, and return the folder of its archive. With `uid`, only the job with this uid.

    `end` says in the archive why it was stopped; without it, a person has stopped it.

    With `force`, pods that have not ended in time are removed from the cluster, although their processes may still run.

    Raises:
        NotFound: the job does not exist, or a later job has its name.
        WaitTimeout: its pods still exist after `timeout` seconds.
        Unreachable, Forbidden: the backend failed; if the logs could not be fetched, nothing was stopped.
    """
    snapshot = read_live(target, job, uid)
    ref = make_ref(target, snapshot)
    with waiting_for(f"the pods of `{job}` to end", timeout):
        return _stop(target, ref, snapshot, timeout=timeout, archive_logs=archive_logs, force=force, end=end)


def _stop(
    target: Target,
    ref: JobRef,
    snapshot: JobSnapshot,
    *,
    timeout: float,
    archive_logs: bool,
    force: bool,
    end: JobChanged | None,
) -> Path | None:
    archive = target.settings.archive_folder
    if target.capabilities.archives_jobs:  # it moves the job's folder to the archive itself
        target.backend.stop(ref, timeout=timeout)
        path = find_newest_launch(archive, snapshot.namespace, ref.name)
        if archive_logs:
            _record_end(path, end)
            return path
        if path.name.startswith(ref.launch):  # not a launch that another command has archived in the meantime
            rmtree(path)
        return None
    if not archive_logs:
        target.cluster.stop(ref, timeout=timeout, force=force)
        return None
    with archive_job(open_snapshot(target, snapshot), snapshot) as path:
        _record_end(path, end)  # at once: the pods may take minutes to end
        target.cluster.stop(ref, timeout=timeout, force=force)
    return path


def _record_end(path: Path, end: JobChanged | None) -> None:
    """Write into the archived state why the job was stopped, for `status` and `diagnose`."""
    if end is None:
        return
    snapshot = folder.read_snapshot(path)
    job = replace(snapshot.job, phase=end.phase, reason=end.reason, message=end.message)
    folder.write_snapshot(path, replace(snapshot, job=job))
