"""`--dry-run`: prints the model's modules and its memory estimate, without weights, data or other ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import torch
from torch import nn

from kfjob.base.text import join_names
from kfjob.trainer.device_defaults import find_own_device
from kfjob.trainer.float8 import convert_linear_layers
from kfjob.trainer.lora import add_adapters, is_adapted
from kfjob.trainer.metrics import default_line
from kfjob.trainer.model import build_meta_model, find_wrap_units, has_tied_embeddings, read_shape
from kfjob.trainer.shapes import count_frozen
from kfjob.trainspec.defaults import OPEN_FIELDS, Defaults, Device, choose_defaults
from kfjob.trainspec.memory_table import describe_memory
from kfjob.trainspec.train_spec import TrainSpec, get_shape


def print_dry_run(spec: TrainSpec) -> int:
    """Print the module tree and the memory table for WORLD_SIZE ranks, 1 by default.

    Raises:
        KfjobError: the model does not exist, or does not have the expected structure.
    """
    model = build_meta_model(spec)
    add_adapters(model, spec)
    convert_linear_layers(model, spec)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", str(min(world_size, 8))))
    if (shape := get_shape(spec) or read_shape(model)) is not None:
        spec = spec.model_copy(update={"model": shape})
    device = find_own_device(torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu"))
    defaults = choose_defaults(spec, device, world_size=world_size, local_world_size=local_world_size)
    lines = [*describe_modules(model, spec), "", *_describe_defaults(spec, defaults, device)]
    lines += describe_memory(defaults.spec, world_size, local_world_size)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _describe_defaults(spec: TrainSpec, defaults: Defaults, device: Device) -> Iterator[str]:
    """Yield what a run on this machine would choose; without a GPU, that a run on GPUs may choose otherwise."""
    open_fields = [f"`{name}`" for name in OPEN_FIELDS if getattr(spec, name) is None]
    if device.kind == "cuda":
        yield from map(default_line, defaults.choices)
    elif open_fields:
        yield f"the table is for a CPU, because this machine has no GPU; a run on GPUs chooses {join_names(open_fields)}:"
        yield "`kfjob estimate` shows the memory on the GPUs of an instance"
    if open_fields:
        yield ""


def describe_modules(model: Any, spec: TrainSpec) -> Iterator[str]:
    """Yield the module tree with the wrap units marked; equal neighbours share a line."""
    units = dict(find_wrap_units(model, spec.wrap))
    count = sum(parameter.numel() for parameter in model.parameters())
    trained = f", {count - count_frozen(model)} of them trained (lora)" if spec.lora else ""
    yield f"{type(model).__name__} with {count} parameters{trained}, {len(units)} wrap units and the root"
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
        kind = type(child).__name__ + (" with an adapter" if is_adapted(child) else "")
        yield f"{indent}{names}: {kind}{f', {number} parameters' if number else ''}{mark}"
        if not is_adapted(child):
            yield from _describe_tree(child, path, units, indent + "  ")


def _signature(module: nn.Module) -> str:
    """Return a text that is equal for modules with the same structure."""
    return type(module).__name__ + str([(name, tuple(value.shape)) for name, value in module.named_parameters()])
