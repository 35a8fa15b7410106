"""The plan of a job: every default with its origin and its reason."""

from kfjob.plan.resolve import resolve, spec_hash
from kfjob.plan.values import (
    DEFAULT_ETCD_IMAGE,
    GRACE_SECONDS,
    Context,
    Decision,
    JobPlan,
    Origin,
    RendezvousPlan,
)

__all__ = [
    "DEFAULT_ETCD_IMAGE",
    "GRACE_SECONDS",
    "Context",
    "Decision",
    "JobPlan",
    "Origin",
    "RendezvousPlan",
    "resolve",
    "spec_hash",
]
