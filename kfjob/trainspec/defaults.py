"""The defaults of the trainer that depend on the device: `compile`, `activation_checkpointing` and `micro_batch_size`. Pure.

On a CPU they are `false`, `false` and 1, and `precision` is `fp32`. On CUDA the layers are compiled, activations are recomputed
if the model needs that by the memory formula, and a forward pass takes as many samples as fit. A micro-batch is a part of the
samples that `gradient_accumulation_steps` counts, so the global batch never depends on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct

from kfjob.base.units import format_gib
from kfjob.trainspec.memory import RESERVED, estimate_memory
from kfjob.trainspec.memory_setup import make_setup
from kfjob.trainspec.model_shapes import ModelShape
from kfjob.trainspec.train_spec import TrainSpec, get_shape

_PLAIN: Mapping[str, Any] = MappingProxyType({"compile": False, "activation_checkpointing": False, "micro_batch_size": 1})
"""The defaults on a CPU."""
OPEN_FIELDS = tuple(_PLAIN)
"""The fields whose default depends on the device."""
USABLE = 0.9
"""The share of a device's memory up to which a default fills it: the formula is an estimate."""


CPU_PRECISION = "fp32"
"""The default of `precision` on a CPU: most CPUs compute bf16 many times slower."""


class Device(Struct, frozen=True, kw_only=True):
    """What the defaults depend on; the same for all ranks."""

    kind: Literal["cuda", "cpu"] = "cpu"
    memory: int = 0
    """Bytes of the smallest device; 0 if unknown."""
    obstacle: str = ""
    """The reason why torch.compile cannot work here, as a phrase; empty if it can."""


class TrainerChoice(Struct, frozen=True, kw_only=True):
    """The value of a field that the spec leaves open."""

    field: str
    value: str
    """As a user would write it, perhaps with a second setting."""
    reason: str
    """A clause that continues "because"."""
    changes: dict[str, Any]

    @property
    def text(self) -> str:
        """The field with its value and the reason."""
        return f"{self.field}: {self.value}, because {self.reason}"


class Defaults(Struct, frozen=True):
    """A spec without open fields, and what was chosen for these; nothing is listed where a CPU's defaults apply."""

    spec: TrainSpec
    choices: tuple[TrainerChoice, ...]


def choose_defaults(
    spec: TrainSpec,
    device: Device,
    *,
    world_size: int,
    local_world_size: int,
    shape: ModelShape | None = None,
    samples: int = 0,
) -> Defaults:
    """Return the spec with a value in each field that it leaves open.

    `shape` is that of a model in a folder or on the hub, if it is known. `samples` are those of a rank in a step, if a resumed
    run has others than the spec.
    """
    choices: list[TrainerChoice] = []
    ranks = world_size, local_world_size
    if device.kind == "cuda":
        for choose in (_choose_compilation, _choose_recomputation, _choose_micro_batch):
            for choice in choose(spec, device, ranks, shape, samples):
                choices.append(choice)
                spec = spec.model_copy(update=choice.changes)
    rest = {name: value for name, value in _PLAIN.items() if getattr(spec, name) is None}
    return Defaults(resolve_precision(spec.model_copy(update=rest), device.kind), tuple(choices))


def has_default_precision(spec: TrainSpec) -> bool:
    """Return whether nobody has chosen the precision, so that the device decides."""
    return "precision" not in spec.model_fields_set


def resolve_precision(spec: TrainSpec, device: str) -> TrainSpec:
    """Return the spec with the precision for this kind of device; the model and the strategy are made with it."""
    is_open = device == "cpu" and has_default_precision(spec)
    return spec.model_copy(update={"precision": CPU_PRECISION}) if is_open else spec


def predict_choices(
    spec: TrainSpec, device: Device | None, *, world_size: int, local_world_size: int
) -> tuple[TrainerChoice, ...]:
    """Return what a run will choose for the fields that its spec leaves open: `auto` for what only the run can choose.

    `device` is None if it is unknown, and `world_size` 0.
    """
    choices: dict[str, TrainerChoice] = {}
    missing = "the device is unknown before the start"
    if device:
        ranks = max(world_size, 1), max(local_world_size, 1)
        known = choose_defaults(spec, device, world_size=ranks[0], local_world_size=ranks[1])
        choices = {choice.field: choice for choice in known.choices}
        missing = _find_missing(spec, device, world_size)
    if device and device.kind == "cpu" and has_default_precision(spec):
        field = "precision"
        choices[field] = TrainerChoice(field=field, value=CPU_PRECISION, reason="the job requests no GPU", changes={})
    for field, value in _PLAIN.items():
        if getattr(spec, field) is not None or (field == "micro_batch_size" and spec.gradient_accumulation_steps == 1):
            continue
        if device and device.kind == "cpu":
            choices[field] = TrainerChoice(field=field, value=str(value).lower(), reason="the job requests no GPU", changes={})
        elif missing and (field != "compile" or device is None):
            choices[field] = TrainerChoice(field=field, value="auto", reason=f"{missing}, and the run chooses", changes={})
    return tuple(choices.values())


def _find_missing(spec: TrainSpec, device: Device, world_size: int) -> str:
    """Return the first unknown that the memory formula needs, as a clause; empty if all is known."""
    if get_shape(spec) is None:
        return "the shape of the model is in its folder or on the hub"
    if not device.memory:
        return "the memory of the GPU is unknown before the start"
    return "" if world_size else "the number of processes is unknown before the start"


_Ranks = tuple[int, int]


def _choose_compilation(
    spec: TrainSpec, device: Device, _ranks: _Ranks, _shape: ModelShape | None, _samples: int
) -> Iterator[TrainerChoice]:
    if spec.compile is not None:
        return
    reasons = (
        (spec.context_parallel > 1, "`context_parallel` does not support it"),
        (spec.strategy in ("deepspeed", "dp"), f"its hooks would divide each compiled layer with strategy `{spec.strategy}`"),
        (spec.activation_offload, "`activation_offload` copies the activations between the operations of a layer"),
        (spec.debug, "`debug` shows where an error happens"),
        (bool(device.obstacle), device.obstacle),
    )
    if reason := next((reason for applies, reason in reasons if applies), ""):
        yield TrainerChoice(field="compile", value="false", reason=reason, changes={"compile": False})
    else:
        yield TrainerChoice(field="compile", value="true", reason="the device is a GPU", changes={"compile": True})


def _choose_recomputation(
    spec: TrainSpec, device: Device, ranks: _Ranks, shape: ModelShape | None, _samples: int
) -> Iterator[TrainerChoice]:
    if spec.activation_checkpointing is not None:
        return
    field, off = "activation_checkpointing", {"activation_checkpointing": False}
    needed, limit = _needed(spec, ranks, shape), device.memory * USABLE
    if needed is None or not device.memory:
        cause = "memory of the GPU" if needed else "memory that the model needs"
        yield TrainerChoice(field=field, value="false", reason=f"the {cause} is unknown", changes=off)
        return
    if needed <= limit or spec.strategy == "dp":
        yield TrainerChoice(field=field, value="false", reason=_describe(needed, device), changes=off)
        return
    for recompute in dict.fromkeys(("cheap", spec.recompute)):
        changes = {"activation_checkpointing": True, "recompute": recompute}
        smaller = _needed(spec.model_copy(update=changes), ranks, shape) or needed
        if smaller <= limit:
            break
    reason = f"{_describe(needed, device)} without it, and {format_gib(smaller)} with it"
    yield TrainerChoice(field=field, value=f"true, recompute: {recompute}", reason=reason, changes=changes)


def _choose_micro_batch(
    spec: TrainSpec, device: Device, ranks: _Ranks, shape: ModelShape | None, samples: int
) -> Iterator[TrainerChoice]:
    samples = samples or spec.gradient_accumulation_steps
    if spec.micro_batch_size is not None or samples == 1:
        return
    shape = get_shape(spec) or shape
    if spec.strategy == "deepspeed" or shape is None or shape.num_experts or not device.memory:
        return  # the loss of a router depends on the micro-batches
    for size in (size for size in range(samples, 0, -1) if samples % size == 0):
        changes = {"micro_batch_size": size, "gradient_accumulation_steps": samples // size}
        needed = _needed(spec.model_copy(update=changes), ranks, shape)
        if needed is None:
            return
        if needed <= device.memory * USABLE or size == 1:
            value = f"{size}, gradient_accumulation_steps: {samples // size}"
            yield TrainerChoice(field="micro_batch_size", value=value, reason=_describe(needed, device), changes=changes)
            return


def _needed(spec: TrainSpec, ranks: _Ranks, shape: ModelShape | None) -> int | None:
    """Return the bytes of a device that the spec needs; None without a formula for it."""
    known = get_shape(spec) or shape
    setup = (
        make_setup(spec.model_copy(update={"model": known}), world_size=ranks[0], local_world_size=ranks[1]) if known else None
    )
    return estimate_memory(setup).peak + RESERVED if setup else None


def _describe(needed: int, device: Device) -> str:
    return f"the estimate is {format_gib(needed)} of {format_gib(device.memory)}"
