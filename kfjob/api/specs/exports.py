"""Specs to other tools' files."""

from __future__ import annotations

from typing import Any

from kfjob.api.specs.render import resolve_at
from kfjob.convert.accelerate import to_accelerate
from kfjob.errors import UsageError
from kfjob.plan import Context
from kfjob.spec.source import LoadedSpec


def accelerate(loaded: LoadedSpec) -> dict[str, Any]:
    """The Accelerate config of a spec's job, for machine 0.

    Raises:
        SpecError: every problem of the spec.
        UsageError: the number of processes is known only on the node.
    """
    plan = resolve_at(loaded.spec.model_copy(update={"image": loaded.spec.image or "any"}), loaded.positions, _ANYWHERE)
    if not plan.processes_per_node.isdecimal():
        cause = f"`processes_per_node` is `{plan.processes_per_node}`, which each node decides for itself"
        raise UsageError("an Accelerate config needs the number of processes", cause=cause, hint="`--set processes_per_node=8`")
    return to_accelerate(loaded.spec, int(plan.processes_per_node))


_ANYWHERE = Context(backend="kubernetes", launch="export")
