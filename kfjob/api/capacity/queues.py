"""Whether Kueue holds the jobs of a kind in their queue, or ignores the queue's label."""

from __future__ import annotations

from kfjob.backends.base import Inventory
from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import KfjobError
from kfjob.kinds.base import JobKind


def ignores_queue(cluster: Inventory, kind: JobKind, job: JsonMapping) -> bool:
    """Return whether Kueue would leave a job with a queue alone: its webhook suspends every job that it manages.

    The integration with PyTorchJobs is off in a new installation of Kueue 0.19 (kueue#12606). Only a dry run shows it to a user
    who may not read Kueue's configuration. A job that is suspended anyway shows nothing, and neither does a refused dry run.
    """
    if kind.is_suspended(job):
        return False
    try:
        return not kind.is_suspended(cluster.dry_run_create(kind.api_version, kind.resource, job))
    except KfjobError:
        return False


def explain_ignored(kind: JobKind) -> tuple[str, str]:
    """Return what is wrong, and how to fix it."""
    integration = f"{kind.group}/{kind.name.lower()}"
    title = f"Kueue ignores the queues of {kind.name}s: the jobs start at once, without a quota"
    hint = f"an administrator adds `{integration}` to `integrations.frameworks` of Kueue's configuration"
    return title, hint
