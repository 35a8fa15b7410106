"""`--dry-run`: prints the model's modules and its memory estimate, without weights, data or other ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any, get_args

from torch import nn

from kfjob.spec.memory import MemorySetup, Scheme, estimate_memory, make_setup
from kfjob.spec.train import TrainSpec, get_shape
from kfjob.text import plural
from kfjob.trainer.model import build_meta_model, find_wrap_units, has_tied_embeddings, read_shape
from kfjob.units import GIB

WORLD_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def print_dry_run(spec: TrainSpec) -> int:
    """Print the module tree and the memory table for WORLD_SIZE ranks, 1 by default.

    Raises:
        KfjobError: the model does not exist, or does not have the expected structure.
    """
    model = build_meta_model(spec)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", str(min(world_size, 8))))
    if (shape := get_shape(spec) or read_shape(model)) is not None:
        spec = spec.model_copy(update={"model": shape})
    lines = [*describe_modules(model, spec), "", *describe_memory(spec, world_size, local_world_size)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def describe_modules(model: Any, spec: TrainSpec) -> Iterator[str]:
    """Yield the module tree with the wrap units marked; equal neighbours share a line."""
    units = dict(find_wrap_units(model, spec.wrap))
    count = sum(parameter.numel() for parameter in model.parameters())
    yield f"{type(model).__name__} with {count} parameters, {len(units)} wrap units and the root"
    yield from _describe_tree(model, "", units, "  ")
    unit = "in the root unit, because they are tied" if has_tied_embeddings(model) else "in units of their own"
    yield f"embedding and head are {unit}"


def _describe_tree(module: nn.Module, prefix: str, units: dict[str, nn.Module], indent: str) -> Iterator[str]:
    children = [(name, child, _signature(child)) for name, child in module.named_children()]
    for _, group in groupby(children, key=lambda entry: entry[2]):
        equal = list(group)
        name, child, _ = equal[0]
        path = f"{prefix}.{name}" if prefix else name
        number = sum(parameter.numel() for parameter in child.parameters())
        names = name if len(equal) == 1 else f"{name} … {equal[-1][0]} ({len(equal)})"
        mark = "  <- unit" if path in units else ""
        yield f"{indent}{names}: {type(child).__name__}{f', {number} parameters' if number else ''}{mark}"
        yield from _describe_tree(child, path, units, indent + "  ")


def _signature(module: nn.Module) -> str:
    """Return a text that is equal for modules with the same structure."""
    return type(module).__name__ + str([(name, tuple(value.shape)) for name, value in module.named_parameters()])


def describe_memory(spec: TrainSpec, world_size: int, local_world_size: int) -> Iterator[str]:
    """Yield the table of GiB per rank for every strategy, and the table of peaks for several world sizes."""
    if get_shape(spec) is None:
        yield "memory: unknown, there is no formula for this model family"
        return
    own = make_setup(spec, world_size=world_size, local_world_size=local_world_size)
    ranks = f"{plural(world_size, 'rank')} ({local_world_size} per node)"
    yield f"GiB on each of {ranks}, micro-batch {spec.micro_batch_size} x {spec.sequence_length} tokens:"
    names = ("parameters", "gradients", "optimiser", "copies", "activations", "logits", "peak")
    yield f"  {'strategy':<14}" + "".join(f"{name:>13}" for name in names)
    for scheme in get_args(Scheme):
        setup = _make_scheme_setup(spec, scheme, world_size, local_world_size)
        if setup is None:
            continue
        estimate = estimate_memory(setup)
        columns = (
            estimate.parameters,
            estimate.gradients,
            estimate.optimizer,
            estimate.copies,
            estimate.activations,
            estimate.logits,
            estimate.peak,
        )
        mark = "  <- this one" if own and own.scheme == scheme else ""
        yield f"  {scheme:<14}" + "".join(f"{size / GIB:>13.3f}" for size in columns) + mark
    yield ""
    yield f"  {'peak, ranks':<14}" + "".join(f"{ranks:>9}" for ranks in WORLD_SIZES)
    for scheme in get_args(Scheme):
        setups = [_make_scheme_setup(spec, scheme, ranks, min(ranks, max(local_world_size, 8))) for ranks in WORLD_SIZES]
        yield f"  {scheme:<14}" + "".join(
            f"{estimate_memory(setup).peak / GIB:>9.2f}" if setup else f"{'':>9}" for setup in setups
        )


def _make_scheme_setup(spec: TrainSpec, scheme: Scheme, world_size: int, local_world_size: int) -> MemorySetup | None:
    """Return the setup of the spec with another strategy; None if the strategy does not support this world size."""
    if scheme == "none" and world_size > 1:
        return None
    precision = (
        "bf16" if spec.precision == "bf16-true" and scheme.startswith("zero") else spec.precision
    )  # ZeRO refuses bf16-true
    no_offload = {"cpu_offload": False, "disk_offload": None}
    base_spec = spec.model_copy(update={"strategy": "fsdp", "sharding": "full", "precision": precision, **no_offload})
    setup = make_setup(base_spec, world_size=world_size, local_world_size=local_world_size)
    if setup is None:
        return None
    return MemorySetup(**{**vars(setup), "scheme": scheme})
