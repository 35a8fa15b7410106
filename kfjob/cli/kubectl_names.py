"""The names that kubectl takes, for `-o name`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfjob.base.errors import UsageError

if TYPE_CHECKING:
    from kfjob.api.reader import JobReader
    from kfjob.api.target import Target
    from kfjob.joblog.events import JobSnapshot

POD_PREFIX = "pod/"
_HINT = "`-o json` prints the names"


def name_pod(pod: str) -> str:
    """Return what `kubectl logs`, `exec`, `port-forward` and `describe` take for a pod."""
    return f"{POD_PREFIX}{pod}"


def name_job(job: JobSnapshot) -> str:
    """Return what `kubectl get` and `kubectl describe` take for a job, as `kubectl get pytorchjobs -o name` prints it."""
    from kfjob.kinds.registry import find_kind

    kind = find_kind(job.job_kind)
    return f"{kind.name.lower()}{kind.group and f'.{kind.group}'}/{job.name}"


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
