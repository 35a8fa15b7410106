"""Every value of a job, where it came from, and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kfjob.api import context
from kfjob.api.settings import Settings
from kfjob.api.specs.render import resolve_at
from kfjob.common_types import Notify
from kfjob.compile.torchrun import operator_environment
from kfjob.errors import NotFound, Problem
from kfjob.lint.secrets import find_secret
from kfjob.plan import JobPlan
from kfjob.spec.job import JobSpec
from kfjob.spec.source import LoadedSpec, Positions


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value of the plan."""

    path: str
    value: str
    origin: str  # spec | instance | default | cluster
    reason: str = ""
    place: str = ""  # in the file, where it stands there


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A plan, with what it was made of."""

    plan: JobPlan
    values: tuple[Value, ...]  # in the order of the spec's fields

    def operator_environment(self, node_rank: int) -> dict[str, str]:
        """What the operator will add to the environment of one pod.

        Raises:
            NotFound: the job has no such pod.
        """
        if not 0 <= node_rank < self.plan.nodes:
            raise NotFound(f"there is no node rank {node_rank}", hint=f"the ranks are 0 to {self.plan.nodes - 1}")
        return operator_environment(self.plan, node_rank)


def explain(loaded: LoadedSpec, *, settings: Settings, notify: Notify) -> Explanation:
    """What would be submitted, value by value.

    Raises:
        SpecError: every problem of the spec.
    """
    backend = context.choose_backend(settings, notify=notify)
    plan = resolve_at(loaded.spec, loaded.positions, context.plan_context(settings, backend))
    found = {value.path: value for value in _written(loaded.spec, loaded.positions)}
    for one in plan.decisions:
        place = found[one.path].place if one.path in found and one.origin == "spec" else ""
        found[one.path] = Value(path=one.path, value=one.value, origin=one.origin, reason=one.reason, place=place)
    order = {name: index for index, name in enumerate(JobSpec.model_fields)}
    values = sorted(found.values(), key=lambda value: order.get(value.path.partition(".")[0], len(order)))
    return Explanation(plan=plan, values=tuple(map(_without_secret, values)))


def _without_secret(value: Value) -> Value:
    """What looks like a secret is not shown: terminals are shared, and their output is kept."""
    _, _, name = value.path.rpartition("env.")
    what = find_secret(value.value, name)
    return replace(value, value=f"(not shown: this looks like {what})") if what else value


def _written(spec: JobSpec, positions: Positions) -> Iterator[Value]:
    """The values of the spec itself: what it says, and the defaults of its fields."""
    said = dict(_leaves(spec.model_dump(mode="json", exclude_unset=True)))
    for path, value in _leaves(spec.model_dump(mode="json")):
        place = ""
        if path in said:
            located = positions.locate_all([Problem(title="", path=path)])[0]
            place = (located.location() or "").partition(" (")[0] if located.file else ""
        yield Value(path=path, value=value, origin="spec" if path in said else "default", place=place)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every scalar with its path; a list of words is one value, and what is empty is none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        yield path, shlex.join(value)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{index}")
    elif value is not None:
        yield path, str(value).lower() if isinstance(value, bool) else str(value)
