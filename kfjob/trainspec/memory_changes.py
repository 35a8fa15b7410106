"""Changes of a training that save memory, each as the text for a user and the changed setup. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from kfjob.base.units import GIB
from kfjob.trainspec.memory import estimate_memory, keeps_whole_gradients
from kfjob.trainspec.memory_setup import MemorySetup

_MAX_FACTOR = 64
"""Factor by which a hint multiplies the number of nodes."""
_LOSS_CHUNK = 1024
_LONG_SEQUENCE = 32768
"""Tokens of a sample from which cutting it is worth the exchange of keys and values."""
_SMALLEST_SAVING = 0.02
"""The share of the peak below which a change is not worth naming."""

Change = tuple[str, MemorySetup]


def _recompute_activations(setup: MemorySetup, _limit: float) -> Change | None:
    if setup.activation_checkpointing:
        return None
    return "`activation_checkpointing: true`", replace(setup, activation_checkpointing=True)


def _chunk_loss(setup: MemorySetup, _limit: float) -> Change | None:
    if 0 < setup.loss_chunk <= _LOSS_CHUNK or setup.tokens <= _LOSS_CHUNK:
        return None
    return f"`loss_chunk: {_LOSS_CHUNK}`", replace(setup, loss_chunk=_LOSS_CHUNK)


def _accumulate_shards(setup: MemorySetup, _limit: float) -> Change | None:
    if not keeps_whole_gradients(setup):
        return None
    return "`accumulate: sharded`", replace(setup, accumulate="sharded")


def _offload(setup: MemorySetup, _limit: float) -> Change | None:
    if setup.cpu_offload or setup.scheme in ("none", "ddp"):
        return None
    return "`cpu_offload: true`", replace(setup, cpu_offload=True)


def _shard(setup: MemorySetup, _limit: float) -> Change | None:
    if setup.world_size == 1 or setup.scheme not in ("ddp", "shard_grad_op", "hybrid"):
        return None
    text = "`strategy: fsdp`" if setup.scheme == "ddp" else "`sharding: full`"
    return text, replace(setup, scheme="full")


def _shrink_micro_batches(setup: MemorySetup, _limit: float) -> Change | None:
    """Keep the global batch where that costs no memory: FSDP may keep whole gradients between micro-batches."""
    if setup.micro_batch_size == 1:
        return None
    if setup.accumulation == 1 and keeps_whole_gradients(replace(setup, accumulation=2)):
        return "`micro_batch_size: 1` (a smaller global batch)", replace(setup, micro_batch_size=1)
    smaller = replace(setup, micro_batch_size=1, accumulation=setup.accumulation * setup.micro_batch_size)
    return f"`micro_batch_size: 1` and `gradient_accumulation_steps: {smaller.accumulation}`", smaller


def _share_samples(setup: MemorySetup, _limit: float) -> Change | None:
    """Cut long samples; groups of two ranks read half as many samples."""
    is_divisible = setup.world_size % 2 == 0 and setup.sequence_length % 4 == 0
    if setup.context_parallel > 1 or setup.sequence_length < _LONG_SEQUENCE or not is_divisible:
        return None
    return "`context_parallel: 2` (a smaller global batch)", replace(setup, context_parallel=2)


def _stop_accumulating(setup: MemorySetup, _limit: float) -> Change | None:
    if not keeps_whole_gradients(setup):
        return None
    return "`gradient_accumulation_steps: 1` (a smaller global batch)", replace(setup, accumulation=1)


def _add_nodes(setup: MemorySetup, limit: float) -> Change | None:
    """Use the smallest multiple of the nodes that is enough."""
    nodes = setup.world_size // setup.local_world_size
    for factor in range(2, _MAX_FACTOR + 1) if setup.scheme == "full" else ():
        larger = replace(setup, world_size=setup.world_size * factor)
        if estimate_memory(larger).peak <= limit:
            return f"`nodes: {nodes * factor}`", larger
    return None


CHANGES = (
    _recompute_activations,
    _chunk_loss,
    _accumulate_shards,
    _shard,
    _shrink_micro_batches,
    _share_samples,
    _stop_accumulating,
    _add_nodes,
    _offload,
)
"""The cheapest change first."""


def describe_savings(setup: MemorySetup) -> list[str]:
    """Return each change that lowers the peak, with the peak before and after, the cheapest first."""
    peak = estimate_memory(setup).peak
    changes = [change for step in CHANGES if (change := step(setup, peak / 2))]
    peaks = [(text, estimate_memory(changed).peak) for text, changed in changes]
    return [
        f"{text} ({peak / GIB:.2f} -> {smaller / GIB:.2f} GiB)"
        for text, smaller in peaks
        if smaller < peak * (1 - _SMALLEST_SAVING)
    ]
