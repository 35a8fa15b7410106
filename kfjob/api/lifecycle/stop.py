"""End a job: archive what it printed, remove it, wait until it is gone."""

from __future__ import annotations

from pathlib import Path

from kfjob.api.lifecycle import archive
from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.events import JobSnapshot

STOP_TIMEOUT = 300.0


def ref_of(target: Target, snapshot: JobSnapshot) -> JobRef:
    """This very job, so that a later one of the same name is never touched."""
    return JobRef(
        backend=target.name, namespace=snapshot.namespace, name=snapshot.name, uid=snapshot.uid, launch=snapshot.launch
    )


def stop(target: Target, job: str, *, timeout: float = STOP_TIMEOUT, archive_logs: bool = True) -> Path | None:
    """Stop a job, whether it runs or has ended; the folder of its archive.

    Raises:
        NotFound: there is no such job.
        WaitTimeout: its pods are still there after `timeout` seconds.
        Unreachable, Forbidden: also while the logs are fetched, and then nothing was stopped.
    """
    snapshot = target.get(job)
    ref = ref_of(target, snapshot)
    root = archive.archive_root(target.settings)
    if target.name == "local":  # which moves its folder to the archive itself
        target.backend.stop(ref, timeout=timeout)
        return archive.newest(root, snapshot.namespace, job)
    if not archive_logs:
        target.backend.stop(ref, timeout=timeout)
        return None
    with archive.keeping(target.backend, ref, snapshot, root) as kept:
        target.backend.stop(ref, timeout=timeout)
    return kept
