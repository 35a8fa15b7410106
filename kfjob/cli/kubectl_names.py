"""The names that kubectl takes, for `-o name`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfjob.base.errors import UsageError
from kfjob.objects.api_objects import PYTORCHJOB, PYTORCHJOB_GROUP

if TYPE_CHECKING:
    from kfjob.api.reader import JobReader
    from kfjob.api.target import Target

POD_PREFIX = "pod/"
_HINT = "`-o json` prints the names"


def name_pod(pod: str) -> str:
    """Return what `kubectl logs`, `exec`, `port-forward` and `describe` take for a pod."""
    return f"{POD_PREFIX}{pod}"


def name_job(job: str) -> str:
    """Return what `kubectl get` and `kubectl describe` take for a job, as `kubectl get pytorchjobs -o name` prints it."""
    return f"{PYTORCHJOB.lower()}.{PYTORCHJOB_GROUP}/{job}"


def check_has_pods(reader: JobReader) -> None:
    """Check that kubectl can reach the pods of a job.

    Raises:
        UsageError: the job runs on this machine, or only its logs are left.
    """
    if reader.archived:
        raise UsageError("`-o name` prints names for kubectl, and only the logs of this job are left", hint=_HINT)
    check_is_cluster(reader.target)


def check_is_cluster(target: Target) -> None:
    """Check that kubectl can reach the jobs of a target.

    Raises:
        UsageError: the jobs run on this machine.
    """
    if not target.capabilities.has_api_server:
        raise UsageError("`-o name` prints names for kubectl, and jobs of the local backend have no pods", hint=_HINT)
