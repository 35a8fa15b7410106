"""Archive the logs of a failed job and delete its pods that still run. The job and its failed pods stay for `diagnose`."""

from __future__ import annotations

from contextlib import suppress

from kfjob.api.lifecycle.archive import archive_job
from kfjob.api.reader import LiveReader
from kfjob.backends.resources import CORE
from kfjob.base.errors import NotFound, Refused
from kfjob.base.text import join_names, plural
from kfjob.joblog.events import JobPhase, PodPhase


def free_survivors(reader: LiveReader) -> str:
    """Delete the pods that still run although the job has failed, and return what was done; "" if nothing had to be.

    Raises:
        NotFound: the job is gone.
        BackendError, Unreachable, Forbidden: the logs cannot be archived, or a pod cannot be deleted.
    """
    target, ref = reader.target, reader.ref
    if not reader.config.frees_survivors or not ref.capabilities.has_api_server:
        return ""
    snapshot = reader.snapshot()
    survivors = [pod for pod in snapshot.pods if pod.phase in {PodPhase.RUNNING, PodPhase.PENDING}]
    if snapshot.phase is not JobPhase.FAILED or not survivors:
        return ""
    with archive_job(reader, snapshot) as folder:
        for pod in survivors:
            metadata = {"name": pod.pod, "namespace": ref.namespace, "uid": pod.uid}
            with suppress(NotFound, Refused):  # it has ended, or another pod has its name
                target.cluster.delete_object({"apiVersion": CORE, "kind": "Pod", "metadata": metadata})
    names = join_names(f"`{pod.pod}`" for pod in survivors)
    return f"deleted {plural(len(survivors), 'pod')} that still ran after the failure: {names}; their logs are in {folder}"
