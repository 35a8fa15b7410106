"""End a job: archive what it printed, remove it, wait until it is gone."""

from __future__ import annotations

from pathlib import Path

from kfjob.api import archive
from kfjob.api.place import Place
from kfjob.backends.base import JobRef
from kfjob.events import JobSnapshot

STOP_TIMEOUT = 300.0


def ref_of(place: Place, snapshot: JobSnapshot) -> JobRef:
    """This very job, so that a later one of the same name is never touched."""
    return JobRef(
        backend=place.name, namespace=snapshot.namespace, name=snapshot.name, uid=snapshot.uid, launch=snapshot.launch
    )


def stop(place: Place, job: str, *, timeout: float = STOP_TIMEOUT, archive_logs: bool = True) -> Path | None:
    """Stop a job, whether it runs or has ended; the folder of its archive.

    Raises:
        NotFound: there is no such job.
        WaitTimeout: its pods are still there after `timeout` seconds.
        Unreachable, Forbidden: also while the logs are fetched, and then nothing was stopped.
    """
    snapshot = place.get(job)
    ref = ref_of(place, snapshot)
    root = archive.archive_root(place.settings)
    if place.name == "local":  # which moves its folder to the archive itself
        place.backend.stop(ref, timeout=timeout)
        return archive.newest(root, snapshot.namespace, job)
    if not archive_logs:
        place.backend.stop(ref, timeout=timeout)
        return None
    with archive.keeping(place.backend, ref, snapshot, root) as kept:
        place.backend.stop(ref, timeout=timeout)
    return kept
