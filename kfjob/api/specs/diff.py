"""What a spec would change at its live job."""

from __future__ import annotations

from kfjob.api.context import plan_context
from kfjob.api.settings import Settings
from kfjob.api.specs.render import resolve_at
from kfjob.api.target import cluster_of, find_target
from kfjob.backends.base import FieldChange
from kfjob.common_types import Notify
from kfjob.spec.source import LoadedSpec


def diff_loaded(loaded: LoadedSpec, *, settings: Settings, notify: Notify) -> tuple[str, list[FieldChange]]:
    """The job's name, and every change with whether it can be made in place; the API server has gone through them.

    Raises:
        SpecError: every problem of the spec.
        NotFound: there is no such job.
        Refused: the job is not kfjob's, or the server would not take the change.
    """
    target = find_target(settings, notify=notify)
    backend = cluster_of(target)
    plan = resolve_at(loaded.spec, loaded.positions, plan_context(settings, target.name))
    return plan.name, backend.diff(plan)
