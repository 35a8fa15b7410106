"""`--dry-run`: what a run would be made of, without memory for its weights, data or other ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any, get_args

from torch import nn

from kfjob.spec.memory import MemorySetup, Scheme, estimate_memory, make_setup
from kfjob.spec.train import TrainSpec, get_shape
from kfjob.trainer.model import meta_model, shape_in, tied, wrap_units
from kfjob.units import GIB

WORLDS = (1, 2, 4, 8, 16, 32, 64, 128)


def dry_run(spec: TrainSpec) -> int:
    """Print the model's parts and the memory table; the number of ranks is WORLD_SIZE, 1 without it.

    Raises:
        KfjobError: there is no such model, or its parts are not what they must be.
    """
    model = meta_model(spec)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(min(world, 8))))
    if (shape := get_shape(spec) or shape_in(model)) is not None:
        spec = spec.model_copy(update={"model": shape})
    sys.stdout.write("\n".join([*parts(model, spec), "", *memory(spec, world, local)]) + "\n")
    return 0


def parts(model: Any, spec: TrainSpec) -> Iterator[str]:
    """The module tree, what repeats in one line, with the units that are gathered one by one marked."""
    units = dict(wrap_units(model, spec.wrap))
    count = sum(parameter.numel() for parameter in model.parameters())
    yield f"{type(model).__name__} with {count} parameters, {len(units)} wrap units and the root"
    yield from _tree(model, "", units, "  ")
    together = "in the root unit, for they are one parameter" if tied(model) else "in units of their own"
    yield f"embedding and head stand {together}"


def _tree(module: nn.Module, prefix: str, units: dict[str, nn.Module], indent: str) -> Iterator[str]:
    children = [(name, child, _form(child)) for name, child in module.named_children()]
    for _, group in groupby(children, key=lambda entry: entry[2]):
        alike = list(group)
        name, child, _ = alike[0]
        path = f"{prefix}.{name}" if prefix else name
        number = sum(parameter.numel() for parameter in child.parameters())
        names = name if len(alike) == 1 else f"{name} … {alike[-1][0]} ({len(alike)})"
        mark = "  <- unit" if path in units else ""
        yield f"{indent}{names}: {type(child).__name__}{f', {number} parameters' if number else ''}{mark}"
        yield from _tree(child, path, units, indent + "  ")


def _form(module: nn.Module) -> str:
    """The same for modules that look alike."""
    return type(module).__name__ + str([(name, tuple(value.shape)) for name, value in module.named_parameters()])


def memory(spec: TrainSpec, world: int, local: int) -> Iterator[str]:
    """GiB of one rank for every strategy, and how the peak falls with more ranks."""
    if get_shape(spec) is None:
        yield "memory: unknown, for there is no formula for a model of this kind"
        return
    own = make_setup(spec, world_size=world, local_world_size=local)
    yield f"GiB on each of {world} ranks ({local} a node), micro-batch {spec.micro_batch_size} x {spec.sequence_length} tokens:"
    names = ("parameters", "gradients", "optimiser", "copies", "activations", "logits", "peak")
    yield f"  {'strategy':<14}" + "".join(f"{name:>13}" for name in names)
    for scheme in get_args(Scheme):
        setup = _setup(spec, scheme, world, local)
        if setup is None:
            continue
        figures = estimate_memory(setup)
        columns = (
            figures.parameters,
            figures.gradients,
            figures.optimizer,
            figures.copies,
            figures.activations,
            figures.logits,
            figures.peak,
        )
        mark = "  <- this one" if own and own.scheme == scheme else ""
        yield f"  {scheme:<14}" + "".join(f"{size / GIB:>13.3f}" for size in columns) + mark
    yield ""
    yield f"  {'peak, ranks':<14}" + "".join(f"{ranks:>9}" for ranks in WORLDS)
    for scheme in get_args(Scheme):
        setups = [_setup(spec, scheme, ranks, min(ranks, max(local, 8))) for ranks in WORLDS]
        yield f"  {scheme:<14}" + "".join(
            f"{estimate_memory(setup).peak / GIB:>9.2f}" if setup else f"{'':>9}" for setup in setups
        )


def _setup(spec: TrainSpec, scheme: Scheme, world: int, local: int) -> MemorySetup | None:
    """The spec with another strategy; None where that does not go with so many ranks."""
    if scheme == "none" and world > 1:
        return None
    precision = "bf16" if spec.precision == "bf16-true" and scheme.startswith("zero") else spec.precision  # refused there
    offloading = {"cpu_offload": False, "disk_offload": None}
    plain = spec.model_copy(update={"strategy": "fsdp", "sharding": "full", "precision": precision, **offloading})
    setup = make_setup(plain, world_size=world, local_world_size=local)
    if setup is None:
        return None
    return MemorySetup(**{**vars(setup), "scheme": scheme})
