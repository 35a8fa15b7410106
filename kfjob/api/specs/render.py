"""Spec -> plan -> the objects as text: what `render` prints is what `submit` sends."""

from __future__ import annotations

import json
from collections.abc import Sequence

import yaml

from kfjob.api import context
from kfjob.api.planning import linted
from kfjob.api.settings import Settings
from kfjob.common_types import JsonObject, Notify
from kfjob.compile.pytorchjob import check_overrides, compile_manifests
from kfjob.errors import SpecError
from kfjob.plan import BackendName, Context, JobPlan, resolve
from kfjob.spec.job import JobSpec
from kfjob.spec.source import LoadedSpec, Positions

_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def plan_of(loaded: LoadedSpec, *, settings: Settings, notify: Notify) -> JobPlan:
    """Decide everything for the backend that the settings lead to.

    Raises:
        SpecError: every problem, with its place in the text; then every finding of lint that is an error.
    """
    backend: BackendName = context.choose_backend(settings, notify=notify)
    plan = resolve_at(loaded.spec, loaded.positions, context.plan_context(settings, backend))
    return linted(loaded, plan, settings=settings, notify=notify)


def resolve_at(spec: JobSpec, positions: Positions, into: Context) -> JobPlan:
    """`resolve`, with the problems put to their place in the text."""
    try:
        plan = resolve(spec, into)
        check_overrides(plan)
    except SpecError as err:
        raise SpecError(positions.locate_all(err.problems)) from None
    return plan


def render(loaded: LoadedSpec, *, settings: Settings, form: str, notify: Notify) -> str:
    """All objects of the job on Kubernetes, as YAML documents or one JSON list."""
    plan = resolve_at(loaded.spec, loaded.positions, context.plan_context(settings, "kubernetes"))
    return as_text(compile_manifests(linted(loaded, plan, settings=settings, notify=notify)), form)


def as_text(objects: Sequence[JsonObject], form: str) -> str:
    """YAML documents, or one JSON list."""
    if form == "json":
        return json.dumps(list(objects), indent=2) + "\n"
    return str(yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True))
