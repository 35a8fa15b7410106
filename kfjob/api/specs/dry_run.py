"""Dry runs of a submit: kfjob, or also the API server, checks the job and creates nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kfjob.api.images.code_layer import CodeLayer
from kfjob.api.lifecycle.preparation import add_code
from kfjob.api.planning import check_nothing, plan_job
from kfjob.api.settings import Settings
from kfjob.api.target import Target, find_target
from kfjob.api.target_needs import find_target_needs
from kfjob.base.common_types import JsonObject, Notify
from kfjob.source.spec_text import LoadedSpec

Mode = Literal["client", "server"]


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """A job that was checked and not created."""

    name: str
    namespace: str
    mode: Mode
    objects: tuple[JsonObject, ...]  # empty for the local backend

    @property
    def result(self) -> str:
        """The result, as a phrase after the job's name."""
        return "would be accepted by the API server" if self.mode == "server" else "is valid"

    def describe(self) -> dict[str, Any]:
        """Return the result for JSON output."""
        return {"job": self.name, "namespace": self.namespace, "dry_run": self.mode, "objects": list(self.objects)}


def dry_run_spec(
    loaded: LoadedSpec, mode: Mode, *, settings: Settings, notify: Notify, code: CodeLayer | None = None
) -> DryRun:
    """Check the job of a spec; with `code`, the job gets the image that a submit would push. Nothing is pushed.

    Raises:
        SpecError: every problem of the spec, and every lint error.
        AlreadyExists, Refused, Forbidden: the API server would not accept the job (mode `server`).
    """
    target = find_target(settings)
    planned = plan_job(loaded, target, check=find_target_needs if target.kind.runs_on_this_machine else check_nothing)
    planned.check_findings(notify)
    if code:
        planned = add_code(planned, loaded, code, notify=notify, dry_run=True)
    plan = planned.plan
    return _check(target, DryRun(name=plan.name, namespace=plan.namespace, mode=mode, objects=planned.manifests))


def _check(target: Target, run: DryRun) -> DryRun:
    if run.mode == "server":
        target.cluster.dry_run(run.objects)
    return run
