"""What a spec would change at its live job."""

from __future__ import annotations

from kfjob.api.config import Settings
from kfjob.api.context import plan_context
from kfjob.api.place import Notice, cluster_of, place
from kfjob.api.render import resolve_at
from kfjob.backends.kubernetes.changes import Change
from kfjob.spec.source import LoadedSpec


def diff_loaded(loaded: LoadedSpec, *, settings: Settings, notice: Notice) -> tuple[str, list[Change]]:
    """The job's name, and every change with whether it can be made in place; the API server has gone through them.

    Raises:
        SpecError: every problem of the spec.
        NotFound: there is no such job.
        Refused: the job is not kfjob's, or the server would not take the change.
    """
    at = place(settings, notice=notice)
    backend = cluster_of(at)
    plan = resolve_at(loaded.spec, loaded.positions, plan_context(settings, at.name))
    return plan.name, backend.diff(plan)
