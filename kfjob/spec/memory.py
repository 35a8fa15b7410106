"""How much memory one rank needs, in bytes: the one formula that the plan's "will it fit?" and the trainer read. Pure.

What is held for the whole run follows the ZeRO paper (Rajbhandari et al. 2020, section 3.1: parameters, gradients and optimiser
state, each whole or divided by the ranks that share it) with the types that this trainer keeps: fp32 parameters, gradients and
AdamW moments whatever the precision of the arithmetic, but for `bf16-true`. DeepSpeed keeps bf16 or fp16 copies and an fp32
master of its own.

What a forward pass keeps was counted tensor by tensor in transformers' llama, mistral, qwen2 and gpt_neox blocks with attention
that never writes its scores down (flash attention, as torch chooses it without a mask).

tests/trainer/test_memory.py measures all of it on processes of this trainer, the peak of a step too; of DeepSpeed what is held,
on the host too (test_zero.py); its copies and other buffers are from the paper and the code alone. Not known to the formula:
fragmentation, workspaces of libraries and the CUDA context, for which `RESERVED` stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kfjob.spec.models import ModelShape, count_embedding_parameters, count_parameters
from kfjob.spec.train import Precision, Recompute, TrainSpec, get_shape
from kfjob.units import GIB

Scheme = Literal["none", "ddp", "full", "shard_grad_op", "hybrid", "zero-0", "zero-1", "zero-2", "zero-3"]
"""Who holds what: a single process, DDP, FSDP2's three ways, the stages of DeepSpeed."""
Optimizer = Literal["adamw", "momentum", "sgd"]

FP32 = 4

RESERVED = 2 * GIB
"""Allowance on every GPU for what no formula knows: CUDA context, cuBLAS workspace, NCCL's channels, fragmentation."""
HOST_PROCESS = 3 * GIB // 2
"""Allowance on the host for each training process: torch and its CUDA libraries, transformers, a data loader's buffers."""

_STATES: Mapping[Optimizer, int] = MappingProxyType({"adamw": 2, "momentum": 1, "sgd": 0})


@dataclass(frozen=True, kw_only=True)
class MemorySetup:
    """All that memory depends on."""

    shape: ModelShape
    scheme: Scheme
    precision: Precision
    world_size: int
    local_world_size: int
    micro_batch_size: int
    sequence_length: int
    accumulation: int = 1
    activation_checkpointing: bool = False
    recompute: Recompute = "all"
    """With `cheap` the products of matrices, and what attention gives, are kept beside a layer's input."""
    recompute_every: int = 1
    activation_offload: bool = False
    """What layers keep waits on the host."""
    loss_chunk: int = 0
    """Tokens whose logits stand at once; 0 is all."""
    optimizer: Optimizer = "adamw"
    cpu_offload: bool = False
    """Optimiser state and gradients live on the host, and parameters where each rank has a part of them only."""

    @property
    def tokens(self) -> int:
        """Of one micro-batch."""
        return self.micro_batch_size * self.sequence_length

    @property
    def compute_bytes(self) -> int:
        """Of one number in a matrix product."""
        return FP32 if self.precision == "fp32" else 2

    @property
    def stored_bytes(self) -> int:
        """Of a parameter, of its gradient and of each of its optimiser's numbers."""
        return 2 if self.precision == "bf16-true" else FP32


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes of one rank, at the moment of the step when each is largest."""

    parameters: int
    gradients: int
    optimizer: int
    copies: int
    """Parameters in the form the arithmetic needs: gathered units (FSDP, ZeRO-3), bf16 casts (autocast)."""
    activations: int
    logits: int
    """With their gradient and the fp32 copies that the loss makes."""
    buffers: int
    """What collectives read from and write to."""
    host: int
    """On the machine, for each process."""
    peak: int
    """On the device, at once: a backward pass frees logits and activations while it makes gradients."""

    def rows(self) -> tuple[tuple[str, int], ...]:
        """(what, bytes), as people read them."""
        return (
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimiser state", self.optimizer),
            ("copies for arithmetic", self.copies),
            ("activations", self.activations),
            ("logits and their gradient", self.logits),
            ("buffers of collectives", self.buffers),
        )


def make_setup(spec: TrainSpec, *, world_size: int, local_world_size: int) -> MemorySetup | None:
    """What `spec` needs on so many ranks; None where only a folder's config.json knows the model, or no formula this way."""
    shape = get_shape(spec)
    if shape is None or spec.disk_offload:  # files are read through buffers of DeepSpeed's
        return None
    scheme: Scheme = "none" if spec.strategy in ("none", "dp") else "ddp"
    if spec.strategy == "fsdp":
        group = 1 if spec.sharding == "no_shard" else spec.shard_size or local_world_size
        scheme, world_size, local_world_size = _sharded(spec, world_size, local_world_size, group)
    elif spec.strategy == "deepspeed" and spec.zero_stage:  # stage 0 is run as DDP is: fp32 parameters, autocast
        scheme = _STAGES[spec.zero_stage - 1]
    return MemorySetup(
        shape=shape,
        scheme=scheme,
        precision=spec.precision,
        world_size=world_size,
        local_world_size=local_world_size,
        micro_batch_size=spec.micro_batch_size,
        sequence_length=spec.sequence_length,
        accumulation=1 if spec.accumulate == "sharded" else spec.gradient_accumulation_steps,
        cpu_offload=spec.cpu_offload,
        activation_checkpointing=spec.activation_checkpointing,
        recompute=spec.recompute,
        recompute_every=spec.recompute_every,
        activation_offload=spec.activation_offload,
        loss_chunk=spec.loss_chunk,
    )


_STAGES: tuple[Scheme, ...] = ("zero-1", "zero-2", "zero-3")


def _sharded(spec: TrainSpec, ranks: int, local: int, group: int) -> tuple[Scheme, int, int]:
    """FSDP's scheme, and the ranks and those of a group that share: groups that hold the same count as one."""
    if spec.sharding in ("hybrid", "no_shard"):
        return "hybrid", ranks, group
    if spec.sharding == "hybrid_shard_grad_op":
        return "shard_grad_op", group, group
    return ("full" if spec.sharding == "full" else "shard_grad_op"), ranks, local


def estimate_memory(setup: MemorySetup) -> MemoryEstimate:
    """Every part, for the rank that holds most."""
    held, copies, buffers = _held(setup), _copies(setup), _buffers(setup)
    waiting = _activations(setup)
    logits = _logits(setup)
    on_device, on_host = _placed(setup, held)
    standing = on_device.parameters + on_device.optimizer + copies
    forward, backward = waiting.kept + max(logits, waiting.again), on_device.gradients + buffers
    lasting = setup.scheme not in ("none", "full", "shard_grad_op", "hybrid") or setup.accumulation > 1
    return MemoryEstimate(
        parameters=on_device.parameters,
        gradients=on_device.gradients,
        optimizer=on_device.optimizer,
        copies=copies,
        activations=waiting.kept + waiting.again,
        logits=logits,
        buffers=buffers,
        host=HOST_PROCESS + _largest_unit(setup.shape) * FP32 + on_host + waiting.host,
        peak=standing + (forward + backward if lasting else max(forward + buffers, waiting.again + backward)),
    )


@dataclass(frozen=True)
class _Held:
    """Bytes that stay from step to step."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer


def _held(setup: MemorySetup) -> _Held:
    """Parameters, gradients, optimiser state.

    FSDP2 keeps the gradients of micro-batches that are not exchanged whole, in fp32 (torch `_fsdp_param_group.py` post_backward
    with `reduce_grads` false), and shards replace them one by one.
    DeepSpeed (ZeRO paper, section 3.1, K = 12): 2 + 2 bytes and 12 for master, moments.
    """
    count, ranks, width = count_parameters(setup.shape), setup.world_size, setup.stored_bytes
    states = _STATES[setup.optimizer] * width
    if setup.scheme in ("none", "ddp"):
        return _Held(count * width, count * width, count * states)
    if setup.scheme in ("full", "shard_grad_op", "hybrid"):
        sharers = setup.local_world_size if setup.scheme == "hybrid" else ranks
        gradients = count * FP32 if setup.accumulation > 1 else _share(count * width, sharers)
        return _Held(_share(count * width, sharers), gradients, _share(count * states, sharers))
    stage = int(setup.scheme[-1])
    master = FP32 if stage or setup.precision != "fp32" else 0
    return _Held(
        _share(count * setup.compute_bytes, ranks if stage >= 3 else 1),  # noqa: PLR2004 - the stage
        _share(count * setup.compute_bytes, ranks if stage >= 2 else 1),  # noqa: PLR2004 - the stage
        _share(count * (states + master), ranks if stage >= 1 else 1),
    )


def _placed(setup: MemorySetup, held: _Held) -> tuple[_Held, int]:
    """What of it is on the device, and the bytes on the host instead.

    DeepSpeed 0.19 keeps for its part of the optimiser also the gradient in fp32 there, a copy of the parameters on their way
    back, and what adds up gradients of micro-batches (stage_1_and_2.py, stage3.py).
    """
    if not setup.cpu_offload:
        return held, 0
    if not setup.scheme.startswith("zero"):
        return _Held(0, 0, 0), held.total
    own = _share(count_parameters(setup.shape), setup.world_size)
    if setup.scheme == "zero-3":
        return _Held(0, 0, 0), held.total + own * FP32
    adding = setup.scheme == "zero-2" and setup.accumulation > 1
    return _Held(held.parameters, 0, 0), held.optimizer + own * (FP32 + setup.compute_bytes * (2 if adding else 1))


def _copies(setup: MemorySetup) -> int:
    """Parameters in the form the arithmetic needs.

    Autocast keeps a cast of every matrix from its forward to its backward pass. FSDP and ZeRO-3 gather the unit that computes
    and the one after it; the root unit (tied embeddings, last norm) stays gathered, and with `shard_grad_op` every unit does.
    """
    shape, width = setup.shape, setup.compute_bytes
    if setup.scheme in ("none", "ddp"):
        return 0 if width == setup.stored_bytes else (count_parameters(shape) - _lookup(shape)) * width
    if setup.scheme in ("zero-0", "zero-1", "zero-2"):
        return 0
    if setup.scheme == "shard_grad_op":
        return count_parameters(shape) * width
    if shape.tie_word_embeddings:
        return (count_embedding_parameters(shape) + 2 * count_layer_parameters(shape)) * width
    return (_largest_unit(shape) + count_layer_parameters(shape)) * width


_BUCKET = 500_000_000
"""Elements of DeepSpeed's `allgather_bucket_size` and of its `reduce_bucket_size`."""


def _buffers(setup: MemorySetup) -> int:
    """What collectives work on: FSDP copies a unit's gathered shards, its gradient and the fp32 input of the reduction."""
    count, width = count_parameters(setup.shape), setup.compute_bytes
    if setup.scheme == "zero-3":  # the bucket of the reduction is there from the start, whatever the model's size
        return _BUCKET * width + (_largest_unit(setup.shape) * (2 * width + FP32) if setup.world_size > 1 else 0)
    if setup.world_size == 1 or setup.scheme in ("none", "ddp"):
        return 0  # DDP's buckets are the gradients themselves (gradient_as_bucket_view)
    if setup.scheme in ("zero-0", "zero-1", "zero-2"):
        return min(count, 2 * _BUCKET) * width
    return _largest_unit(setup.shape) * (2 * width + FP32)


_KEPT: Mapping[tuple[str, str], tuple[int, int]] = MappingProxyType(
    {
        # norms' input, what is normed and their output, q, attention's output
        ("llama", "fp32"): (32, 12),
        ("llama", "cast"): (20, 8),
        ("llama", "autocast"): (30, 10),  # the stream stays fp32, and every matrix product keeps a cast of its own
        # both norms' input and outputs, fused q, k and v, the rotated q and k, attention's output twice
        ("gpt_neox", "fp32"): (40, 8),
        ("gpt_neox", "cast"): (20, 4),
        ("gpt_neox", "autocast"): (22, 6),
    }
)
"""Bytes that (a layer, the last norm) keeps for each number of the residual stream."""


def _logits(setup: MemorySetup) -> int:
    """Of the loss: logits, their gradient and what lies between; in chunks also the gradients of head and hidden states, which
    are worked out with them (trainer/loss.py).
    """
    shape, width = setup.shape, setup.compute_bytes
    if not setup.loss_chunk:
        return 3 * FP32 * setup.tokens * shape.vocab_size
    chunk = min(setup.tokens, setup.loss_chunk) * shape.vocab_size * (FP32 + (width if width < FP32 else 0))
    return chunk + shape.vocab_size * shape.hidden_size * (FP32 + width) + setup.tokens * shape.hidden_size * width


@dataclass(frozen=True)
class _Waiting:
    """What a backward pass needs, in bytes, of all layers and the last norm."""

    kept: int
    """Since the forward pass, on the device."""
    again: int
    """Computed anew in the backward pass, or brought back from the host: one layer at a time."""
    host: int
    """Kept on the host instead."""


def _activations(setup: MemorySetup) -> _Waiting:
    """What the forward passes keep for the backward pass."""
    shape, width = setup.shape, setup.compute_bytes
    autocast = setup.scheme in ("none", "ddp") and width < setup.stored_bytes
    form = "fp32" if width == FP32 else "autocast" if autocast else "cast"
    neox = shape.architecture == "gpt_neox"
    stream, norm = _KEPT["gpt_neox" if neox else "llama", form]
    sums = FP32 * shape.num_attention_heads  # the logarithms of the softmaxes' sums
    layer = stream * shape.hidden_size + sums
    # llama: k and v, then gate, its SiLU, up, their product. gpt_neox: GELU before and after.
    layer += 2 * width * shape.intermediate_size if neox else 4 * width * shape.intermediate_size
    # Within a window attention takes a mask, and transformers then repeats k and v for every head (sdpa_attention.py).
    masked = bool(shape.sliding_window and setup.sequence_length > shape.sliding_window)
    heads = shape.num_attention_heads if masked else shape.key_value_heads
    layer += 0 if neox else 2 * width * heads * shape.head_dim
    layer += width * setup.sequence_length if masked else 0
    given = shape.hidden_size * (2 if form == "cast" else FP32)
    kept, again = given, layer
    if setup.recompute == "cheap":
        # q, k, v and attention's output, then gate and up; what leads back to the stream is no part of what a layer keeps
        inside = (4 if neox else 2) * shape.hidden_size + (1 if neox else 2) * shape.intermediate_size
        inside += 0 if neox else 2 * shape.key_value_heads * shape.head_dim
        kept, again = given + sums + width * (inside + 2 * shape.hidden_size), layer - sums - width * inside
    count = -(-shape.num_hidden_layers // setup.recompute_every) if setup.activation_checkpointing else 0
    layers = count * kept + (shape.num_hidden_layers - count) * layer
    again = again if count else 0
    if setup.activation_offload:
        return _Waiting(setup.tokens * norm * shape.hidden_size, setup.tokens * max(again, layer), setup.tokens * layers)
    return _Waiting(setup.tokens * (layers + norm * shape.hidden_size), setup.tokens * again, 0)


def count_layer_parameters(shape: ModelShape) -> int:
    """Parameters of one decoder layer."""
    norms = shape.hidden_size * (2 if shape.architecture == "gpt_neox" else 1)
    ends = count_embedding_parameters(shape) * (1 if shape.tie_word_embeddings else 2) + norms
    return (count_parameters(shape) - ends) // shape.num_hidden_layers


def _largest_unit(shape: ModelShape) -> int:
    """Parameters of the largest part that is gathered at once (trainer/model.py, wrap_units)."""
    return max(count_layer_parameters(shape), count_embedding_parameters(shape))


def _lookup(shape: ModelShape) -> int:
    """Parameters that are looked up and never multiplied: an embedding that is not the head too."""
    return 0 if shape.tie_word_embeddings else count_embedding_parameters(shape)


def _share(amount: int, ranks: int) -> int:
    return -(-amount // ranks)
