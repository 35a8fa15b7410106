"""What a spec would change in its live job."""

from __future__ import annotations

from kfjob.api.planning import plan_job
from kfjob.api.settings import Settings
from kfjob.api.target import find_target
from kfjob.backends.base import FieldChange
from kfjob.base.common_types import Notify
from kfjob.base.errors import UsageError
from kfjob.source.spec_text import LoadedSpec


def diff_loaded(loaded: LoadedSpec, *, settings: Settings, notify: Notify) -> tuple[str, list[FieldChange]]:
    """Return the job's name and every change, with whether it works in place, after the API server has processed them.

    Raises:
        SpecError: every problem of the spec.
        NotFound: the job does not exist.
        UsageError: the target is this machine.
        Refused: kfjob did not submit the job, or the API server would not accept the change.
    """
    planned = plan_job(loaded, find_target(settings, notify=notify))
    if not planned.target.kind.has_api_server:
        raise UsageError(
            "a job on this machine cannot be compared with a spec",
            hint=f"`kfjob stop {planned.plan.name}`, then `kfjob submit`, starts it with the changed spec; "
            "`--backend kubernetes` compares with the job of a cluster",
        )
    return planned.plan.name, planned.target.cluster.diff(planned.plan)
