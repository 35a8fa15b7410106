"""End a job: archive its logs, remove it, and wait until it is gone."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

from kfjob.api.lifecycle.archive import archive_job
from kfjob.api.reader import check_uid, make_ref
from kfjob.api.settings import STOP_TIMEOUT
from kfjob.api.target import Target
from kfjob.backends.archived_job import find_newest_launch
from kfjob.backends.base import JobRef
from kfjob.base.concurrency import waiting_for
from kfjob.base.errors import NotFound
from kfjob.joblog.events import JobSnapshot


def stop(target: Target, job: str, *, timeout: float = STOP_TIMEOUT, archive_logs: bool = True, uid: str = "") -> Path | None:
    """Remove a job that runs or has ended, and return the folder of its archive. With `uid`, only the job with this uid.

    Raises:
        NotFound: the job does not exist, or a later job has its name.
        WaitTimeout: its pods still exist after `timeout` seconds.
        Unreachable, Forbidden: the backend failed; if the logs could not be fetched, nothing was stopped.
    """
    try:
        snapshot = target.get_job(job)
    except NotFound as err:
        raise target.suggest(job, err) from None
    check_uid(snapshot, uid)
    ref = make_ref(target, snapshot)
    with waiting_for(f"the pods of `{job}` to end", timeout):
        return _stop(target, ref, snapshot, timeout=timeout, archive_logs=archive_logs)


def _stop(target: Target, ref: JobRef, snapshot: JobSnapshot, *, timeout: float, archive_logs: bool) -> Path | None:
    archive = target.settings.archive
    if target.capabilities.archives_jobs:  # it moves the job's folder to the archive itself
        target.backend.stop(ref, timeout=timeout)
        folder = find_newest_launch(archive, snapshot.namespace, ref.name)
        if archive_logs:
            return folder
        if folder.name.startswith(ref.launch):  # not a launch that another command has archived in the meantime
            rmtree(folder)
        return None
    if not archive_logs:
        target.backend.stop(ref, timeout=timeout)
        return None
    with archive_job(target.backend, ref, snapshot, archive) as folder:
        target.backend.stop(ref, timeout=timeout)
    return folder
