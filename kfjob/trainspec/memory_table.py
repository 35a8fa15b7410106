"""The memory of one job with every strategy side by side, for `kfjob estimate` and for the trainer's dry run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from kfjob.base.errors import SpecError
from kfjob.base.text import plural
from kfjob.base.units import GIB
from kfjob.trainspec.memory import RESERVED, MemoryEstimate, estimate_memory
from kfjob.trainspec.memory_setup import make_setup
from kfjob.trainspec.train_spec import TrainSpec, get_shape, resolve_micro_batch_size

WORLD_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "none": {"strategy": "none"},
        "dp": {"strategy": "dp"},
        "ddp": {"strategy": "ddp"},
        "zero-0": {"strategy": "deepspeed", "zero_stage": 0},
        "zero-1": {"strategy": "deepspeed", "zero_stage": 1},
        "zero-2": {"strategy": "deepspeed", "zero_stage": 2},
        "zero-3": {"strategy": "deepspeed", "zero_stage": 3},
        "full": {"strategy": "fsdp", "sharding": "full"},
        "shard_grad_op": {"strategy": "fsdp", "sharding": "shard_grad_op"},
        "hybrid": {"strategy": "fsdp", "sharding": "hybrid"},
    }
)
"""The fields of each strategy; the three last are FSDP's."""
_COLUMNS = ("parameters", "gradients", "optimizer", "copies", "activations", "logits", "peak")


class MemoryRow(Struct, frozen=True, kw_only=True):
    """The memory of one rank with one strategy."""

    name: str
    estimate: MemoryEstimate
    is_own: bool
    """Whether this is the strategy of the spec."""

    @property
    def needed(self) -> int:
        """The bytes of a GPU that the strategy needs: its peak, and the allowance for what the formula does not include."""
        return self.estimate.peak + RESERVED


def list_rows(spec: TrainSpec, *, world_size: int, local_world_size: int) -> list[MemoryRow]:
    """Return the memory with every strategy that can run with this number of ranks; none without a formula for the model,
    or if `context_parallel` does not divide the ranks.

    `dp` is one process with the GPUs of one node and the same batch on each; its row is the first GPU. What DeepSpeed does not
    support is changed as little as possible: `bf16-true` and `fp8` to `bf16`. Neither `dp` nor DeepSpeed has `lora.quantize`.
    """
    if world_size % spec.context_parallel:
        return []
    own = _find_own_name(spec)
    variants = {**_VARIANTS, own: _VARIANTS.get(own, {"strategy": "fsdp", "sharding": spec.sharding})}
    rows = []
    for name, fields in variants.items():
        is_single = name in ("none", "dp")
        if (name == "none" and world_size > 1) or (name == "dp" and world_size > local_world_size):
            continue
        ranks = (1, 1) if is_single else (world_size, local_world_size)
        estimate = _estimate(spec, fields, ranks)
        if estimate:
            rows.append(MemoryRow(name=name, estimate=estimate, is_own=name == own and not spec.disk_offload))
    return rows


def describe_memory(spec: TrainSpec, world_size: int, local_world_size: int) -> Iterator[str]:
    """Yield the table of GiB per rank for every strategy, and the table of peaks for several world sizes."""
    if get_shape(spec) is None:
        yield "memory: unknown, there is no formula for this model family"
        return
    ranks = f"{plural(world_size, 'rank')} ({local_world_size} per node)"
    yield f"GiB on each of {ranks}, micro-batch {resolve_micro_batch_size(spec)} x {spec.sequence_length} tokens:"
    yield f"  {'strategy':<22}" + "".join(f"{_label(name):>12}" for name in _COLUMNS)
    for row in list_rows(spec, world_size=world_size, local_world_size=local_world_size):
        sizes = (getattr(row.estimate, name) / GIB for name in _COLUMNS)
        yield f"  {row.name:<22}" + "".join(f"{size:>12.3f}" for size in sizes) + ("  <- this one" if row.is_own else "")
    yield ""
    yield f"  {'peak, ranks':<22}" + "".join(f"{ranks:>9}" for ranks in WORLD_SIZES)
    peaks = [_list_peaks(spec, ranks, min(ranks, max(local_world_size, 8))) for ranks in WORLD_SIZES]
    for name in dict.fromkeys(name for column in peaks for name in column):
        yield f"  {name:<22}" + "".join(f"{column[name] / GIB:>9.2f}" if name in column else f"{'':>9}" for column in peaks)


def _list_peaks(spec: TrainSpec, ranks: int, local_ranks: int) -> dict[str, int]:
    return {row.name: row.estimate.peak for row in list_rows(spec, world_size=ranks, local_world_size=local_ranks)}


def _label(column: str) -> str:
    return {"optimizer": "optimiser"}.get(column, column)


def _find_own_name(spec: TrainSpec) -> str:
    if spec.strategy == "deepspeed":
        return f"zero-{spec.zero_stage}"
    return spec.sharding if spec.strategy == "fsdp" else spec.strategy


def _estimate(spec: TrainSpec, fields: Mapping[str, Any], ranks: tuple[int, int]) -> MemoryEstimate | None:
    """Return the memory of the spec with the fields of a strategy; None if the strategy does not support the spec."""
    strategy, stage = fields["strategy"], fields.get("zero_stage")
    is_deepspeed = strategy == "deepspeed"
    offloads = spec.cpu_offload and (strategy == "fsdp" or bool(stage))
    changes: dict[str, Any] = {"cpu_offload": offloads, "disk_offload": None, **fields}
    if spec.lora and strategy in ("deepspeed", "dp"):
        changes["lora"] = spec.lora.model_copy(update={"quantize": None})
    if is_deepspeed:
        changes |= {"on_nan": "stop", "on_spike": "ignore"}
        changes |= {"precision": "bf16"} if spec.precision in ("bf16-true", "fp8") else {}
        changes |= {"fp8_recipe": "tensorwise", "fp8_emulate": False}
    try:
        setup = make_setup(spec.model_copy(update=changes), world_size=ranks[0], local_world_size=ranks[1])
    except SpecError:  # DeepSpeed's stage 0 does not support fp16
        return None
    return estimate_memory(setup) if setup else None
