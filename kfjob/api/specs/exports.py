"""Convert specs to the formats of other tools."""

from __future__ import annotations

from kfjob.api.planning import resolve_spec
from kfjob.base.errors import UsageError
from kfjob.convert.accelerate import to_accelerate
from kfjob.convert.conversion import Conversion
from kfjob.plan import Context
from kfjob.source.spec_text import LoadedSpec


def export_accelerate(loaded: LoadedSpec) -> Conversion:
    """Return the Accelerate config of a spec's job, and notes about settings that it cannot hold.

    Raises:
        SpecError: every problem of the spec.
        UsageError: only the node knows the number of processes.
    """
    spec = loaded.spec.model_copy(update={"image": loaded.spec.image or "any"})  # the config has no image
    plan = resolve_spec(spec, loaded.positions, Context(backend="kubernetes", launch="export"))
    if not plan.processes_per_node.isdecimal():
        cause = f"`processes_per_node` is `{plan.processes_per_node}`, which each node decides for itself"
        raise UsageError("an Accelerate config needs the number of processes", cause=cause, hint="`--set processes_per_node=8`")
    return to_accelerate(loaded.spec, int(plan.processes_per_node))
