"""Limits that kfjob itself enforces while somebody follows a job or waits for it."""

from __future__ import annotations

from pydantic import Field

from kfjob.spec.base import SpecModel
from kfjob.spec.scheduling import Seconds


class Watchdog(SpecModel):
    """When `kfjob wait`, `kfjob watch` and `submit --follow` end a job. Its logs are archived first."""

    deadline: Seconds | None = Field(default=None, ge=1, description="since the job began to run")
    pending: Seconds | None = Field(default=None, ge=1, description="for a pod to wait until it runs")
    stall: Seconds | None = Field(default=None, ge=1, description="without a progress line, once one was printed")
    crashes: int | None = Field(
        default=None, ge=1, description="restarts of one pod's container; the operator calls it Running"
    )
