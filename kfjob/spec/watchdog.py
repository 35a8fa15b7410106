"""Limits that kfjob itself enforces, and how the guard continues a job that fails."""

from pydantic import Field

from kfjob.spec.scheduling import Seconds
from kfjob.validation.spec_model import SpecModel


class Watchdog(SpecModel):
    """Limits at which the guard, `kfjob wait`, `kfjob watch` and `submit --follow` stop a job, after they archive its logs."""

    deadline: Seconds | None = Field(default=None, ge=1, description="Longest run time, from the start of the job")
    pending: Seconds | None = Field(default=None, ge=1, description="Longest time until a pod runs")
    stall: Seconds | None = Field(default=None, ge=1, description="Longest time between two progress lines")
    crashes: int | None = Field(
        default=None, ge=1, description="Most restarts of one pod's container; the operator reports such a job as Running"
    )


class Recovery(SpecModel):
    """What the guard of the namespace does when nobody follows the job (`kfjob guard install`)."""

    retries: int = Field(
        default=3,
        ge=0,
        le=20,  # as many as the job remembers: `MAX_HISTORY` of kfjob.guard.facts
        description="Most relaunches in a row without progress; a newer checkpoint renews this number",
    )
