"""The memory of one rank in bytes: the one formula for the check whether a model fits and for the trainer. Pure.

State that lasts for the whole training follows the ZeRO paper (Rajbhandari et al. 2020, section 3.1: parameters, gradients
and optimiser state, each whole or divided among the ranks that share it), with the types of this trainer: fp32 parameters,
gradients and AdamW moments for every precision of the arithmetic except `bf16-true`. DeepSpeed keeps bf16 or fp16 copies and
an fp32 master copy.

The activations of a forward pass were counted tensor by tensor in transformers' llama, mistral, qwen2 and gpt_neox blocks, with
attention that never stores its scores (flash attention, which torch chooses without a mask).

tests/trainer/test_memory.py measures all parts and the peak of a step in processes of this trainer. For DeepSpeed, test_zero.py
measures the lasting state, on the host too; DeepSpeed's copies and other buffers come from the paper and the code alone. The
formula does not include fragmentation, workspaces of libraries and the CUDA context; `RESERVED` is an allowance for these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kfjob.spec.models import ModelShape, count_embedding_parameters, count_parameters
from kfjob.spec.train import Accumulate, Precision, Recompute, TrainSpec, get_shape
from kfjob.units import GIB

Scheme = Literal["none", "ddp", "full", "shard_grad_op", "hybrid", "zero-0", "zero-1", "zero-2", "zero-3"]
"""The distribution of the state: a single process, DDP, FSDP2's three ways, the stages of DeepSpeed."""
Optimizer = Literal["adamw", "momentum", "sgd"]

FP32 = 4

RESERVED = 2 * GIB
"""Allowance on every GPU for memory outside the formula: CUDA context, cuBLAS workspace, NCCL's channels, fragmentation."""
HOST_PROCESS = 3 * GIB // 2
"""Allowance on the host for each training process: torch and its CUDA libraries, transformers, a data loader's buffers."""

_STATES: Mapping[Optimizer, int] = MappingProxyType({"adamw": 2, "momentum": 1, "sgd": 0})
_FSDP: tuple[Scheme, ...] = ("full", "shard_grad_op", "hybrid")
_STAGES: tuple[Scheme, ...] = ("zero-1", "zero-2", "zero-3")
_BUCKET = 500_000_000
"""Elements of DeepSpeed's `allgather_bucket_size` and of its `reduce_bucket_size`."""


@dataclass(frozen=True, kw_only=True)
class MemorySetup:
    """Everything that the memory of a rank depends on."""

    shape: ModelShape
    scheme: Scheme
    precision: Precision
    world_size: int
    local_world_size: int
    micro_batch_size: int
    sequence_length: int
    accumulation: int = 1
    accumulate: Accumulate = "sharded"
    """The form in which FSDP keeps gradients between micro-batches."""
    activation_checkpointing: bool = False
    recompute: Recompute = "all"
    """With `cheap`, a layer keeps the results of its matrix products and of its attention beside its input."""
    recompute_every: int = 1
    activation_offload: bool = False
    """Whether the host holds the activations of layers between forward and backward pass."""
    loss_chunk: int = 0
    """Tokens whose logits exist at once; 0 is all of them."""
    optimizer: Optimizer = "adamw"
    cpu_offload: bool = False
    """Whether the host holds optimiser state and gradients, and also parameters if they are sharded."""

    @property
    def tokens(self) -> int:
        """The tokens of one micro-batch."""
        return self.micro_batch_size * self.sequence_length

    @property
    def compute_bytes(self) -> int:
        """The bytes of one number in a matrix product."""
        return FP32 if self.precision == "fp32" else 2

    @property
    def stored_bytes(self) -> int:
        """The bytes of a parameter, of its gradient and of each of its optimiser states."""
        return 2 if self.precision == "bf16-true" else FP32


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """The memory of one rank in bytes; each part at the moment of the step when it is largest."""

    parameters: int
    gradients: int
    optimizer: int
    copies: int
    """Parameters in the form that the arithmetic needs: gathered units (FSDP, ZeRO-3), bf16 casts (autocast)."""
    activations: int
    logits: int
    """Logits with their gradient and the fp32 copies of the loss."""
    buffers: int
    """Inputs and outputs of collectives."""
    host: int
    """Memory of the process on the host."""
    peak: int
    """Device memory at the worst moment. The backward pass frees logits and activations while it creates gradients."""

    def rows(self) -> tuple[tuple[str, int], ...]:
        """Return the parts on the device, each with a label for users."""
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
    """Return the setup of a spec; None if the model's shape is only in a folder or on the hub, or no formula applies."""
    shape = get_shape(spec)
    if shape is None or spec.disk_offload:  # the formula does not know DeepSpeed's file buffers
        return None
    scheme: Scheme = "none" if spec.strategy in ("none", "dp") else "ddp"
    if spec.strategy == "fsdp":
        group = 1 if spec.sharding == "no_shard" else spec.shard_size or local_world_size
        scheme, world_size, local_world_size = _choose_fsdp_scheme(spec, world_size, local_world_size, group)
    elif spec.strategy == "deepspeed" and spec.zero_stage:  # stage 0 works like DDP: fp32 parameters, autocast
        scheme = _STAGES[spec.zero_stage - 1]
    return MemorySetup(
        shape=shape,
        scheme=scheme,
        precision=spec.precision,
        world_size=world_size,
        local_world_size=local_world_size,
        micro_batch_size=spec.micro_batch_size,
        sequence_length=spec.sequence_length,
        accumulation=spec.gradient_accumulation_steps,
        accumulate=spec.accumulate,
        cpu_offload=spec.cpu_offload,
        activation_checkpointing=spec.activation_checkpointing,
        recompute=spec.recompute,
        recompute_every=spec.recompute_every,
        activation_offload=spec.activation_offload,
        loss_chunk=spec.loss_chunk,
    )


def _choose_fsdp_scheme(spec: TrainSpec, ranks: int, local_ranks: int, group: int) -> tuple[Scheme, int, int]:
    """Return FSDP's scheme, the number of ranks, and the ranks that share the state; groups that replicate count as one."""
    if spec.sharding in ("hybrid", "no_shard"):
        return "hybrid", ranks, group
    if spec.sharding == "hybrid_shard_grad_op":
        return "shard_grad_op", group, group
    return ("full" if spec.sharding == "full" else "shard_grad_op"), ranks, local_ranks


def estimate_memory(setup: MemorySetup) -> MemoryEstimate:
    """Return the memory of the rank that needs most."""
    state, copies, buffers = _estimate_state(setup), _estimate_copies(setup), _estimate_buffers(setup)
    activations = _estimate_activations(setup)
    logits = _estimate_logits(setup)
    device_state, host_state = _split_state(setup, state)
    lasting = device_state.parameters + device_state.optimizer + copies
    forward = activations.device + max(logits, activations.recomputed)
    backward = device_state.gradients + buffers
    keeps_gradients = setup.scheme not in ("none", *_FSDP) or setup.accumulation > 1
    step = forward + backward if keeps_gradients else max(forward + buffers, activations.recomputed + backward)
    return MemoryEstimate(
        parameters=device_state.parameters,
        gradients=device_state.gradients,
        optimizer=device_state.optimizer,
        copies=copies,
        activations=activations.device + activations.recomputed,
        logits=logits,
        buffers=buffers,
        host=HOST_PROCESS + _count_largest_unit(setup.shape) * FP32 + host_state + activations.host,
        peak=lasting + step,
    )


def keeps_whole_gradients(setup: MemorySetup) -> bool:
    """Return whether every rank keeps all gradients between micro-batches, although the parameters are sharded."""
    return setup.scheme in _FSDP and setup.accumulation > 1 and setup.accumulate == "whole"


@dataclass(frozen=True)
class _State:
    """Bytes that last from step to step."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer


def _estimate_state(setup: MemorySetup) -> _State:
    """Return parameters, gradients and optimiser state.

    FSDP2 keeps the gradients of micro-batches without a reduction whole, in fp32 (torch `_fsdp_param_group.py` post_backward
    with `reduce_grads` false), and shards replace them one by one.
    DeepSpeed (ZeRO paper, section 3.1, K = 12): 2 + 2 bytes, and 12 for master copy and moments.
    """
    count, ranks, width = count_parameters(setup.shape), setup.world_size, setup.stored_bytes
    states = _STATES[setup.optimizer] * width
    if setup.scheme in ("none", "ddp"):
        return _State(count * width, count * width, count * states)
    if setup.scheme in _FSDP:
        sharers = setup.local_world_size if setup.scheme == "hybrid" else ranks
        gradients = count * FP32 if keeps_whole_gradients(setup) else _divide(count * width, sharers)
        return _State(_divide(count * width, sharers), gradients, _divide(count * states, sharers))
    stage = int(setup.scheme[-1])
    master = FP32 if stage or setup.precision != "fp32" else 0
    return _State(
        _divide(count * setup.compute_bytes, ranks if stage >= 3 else 1),  # noqa: PLR2004 - the stage
        _divide(count * setup.compute_bytes, ranks if stage >= 2 else 1),  # noqa: PLR2004 - the stage
        _divide(count * (states + master), ranks if stage >= 1 else 1),
    )


def _split_state(setup: MemorySetup, state: _State) -> tuple[_State, int]:
    """Return the state on the device, and the bytes of state on the host.

    With offload, DeepSpeed 0.19 keeps three more arrays on the host, each for the rank's part of the parameters: the gradient
    in fp32, a copy of the parameters before their transfer, and the sum of the micro-batches' gradients (stage_1_and_2.py,
    stage3.py).
    """
    if not setup.cpu_offload:
        return state, 0
    if not setup.scheme.startswith("zero"):
        return _State(0, 0, 0), state.total
    part = _divide(count_parameters(setup.shape), setup.world_size)
    if setup.scheme == "zero-3":
        return _State(0, 0, 0), state.total + part * FP32
    sums_gradients = setup.scheme == "zero-2" and setup.accumulation > 1
    host = state.optimizer + part * (FP32 + setup.compute_bytes * (2 if sums_gradients else 1))
    return _State(state.parameters, 0, 0), host


def _estimate_copies(setup: MemorySetup) -> int:
    """Return the bytes of temporary copies of parameters: casts for autocast, and gathered units.

    Autocast keeps the cast of each matrix from the forward to the backward pass; of the recomputed layers it keeps one. FSDP
    and ZeRO-3 gather the current unit and the next one; the root unit (tied embeddings, last norm) stays gathered, and with
    `shard_grad_op` every unit does.
    """
    shape, width = setup.shape, setup.compute_bytes
    if setup.scheme in ("none", "ddp"):
        if width == setup.stored_bytes:
            return 0
        released = max(0, _count_recomputed_layers(setup) - 1) * count_layer_parameters(shape)
        return (count_parameters(shape) - _count_lookup_parameters(shape) - released) * width
    if setup.scheme in ("zero-0", "zero-1", "zero-2"):
        return 0
    if setup.scheme == "shard_grad_op":
        return count_parameters(shape) * width
    if shape.tie_word_embeddings:
        return (count_embedding_parameters(shape) + 2 * count_layer_parameters(shape)) * width
    return (_count_largest_unit(shape) + count_layer_parameters(shape)) * width


def _estimate_buffers(setup: MemorySetup) -> int:
    """Return the bytes of buffers for collectives.

    FSDP copies a unit's gathered shards, its gradient and the fp32 input of the reduction.
    """
    count, width = count_parameters(setup.shape), setup.compute_bytes
    if setup.scheme == "zero-3":  # DeepSpeed allocates the bucket of the reduction at the start, for every model size
        return _BUCKET * width + (_count_largest_unit(setup.shape) * (2 * width + FP32) if setup.world_size > 1 else 0)
    if setup.world_size == 1 or setup.scheme in ("none", "ddp"):
        return 0  # DDP's buckets are the gradients themselves (gradient_as_bucket_view)
    if setup.scheme in ("zero-0", "zero-1", "zero-2"):
        return min(count, 2 * _BUCKET) * width
    return _count_largest_unit(setup.shape) * (2 * width + FP32)


def _estimate_logits(setup: MemorySetup) -> int:
    """Return the bytes of the loss: logits, their gradient and the values between them.

    A loss in chunks also holds the gradients of the head and of the hidden states, which it computes at once (trainer/loss.py).
    """
    shape, width = setup.shape, setup.compute_bytes
    if not setup.loss_chunk:
        return 3 * FP32 * setup.tokens * shape.vocab_size
    chunk = min(setup.tokens, setup.loss_chunk) * shape.vocab_size * (FP32 + (width if width < FP32 else 0))
    return chunk + shape.vocab_size * shape.hidden_size * (FP32 + width) + setup.tokens * shape.hidden_size * width


_STREAM_BYTES: Mapping[tuple[str, str], tuple[int, int]] = MappingProxyType(
    {
        # input, normalised value and output of the norms, q, output of the attention
        ("llama", "fp32"): (32, 12),
        ("llama", "cast"): (20, 8),
        ("llama", "autocast"): (30, 10),  # the residual stream stays fp32, and every matrix product keeps a cast of its own
        # input and outputs of both norms, fused q, k and v, the rotated q and k, output of the attention twice
        ("gpt_neox", "fp32"): (40, 8),
        ("gpt_neox", "cast"): (20, 4),
        ("gpt_neox", "autocast"): (22, 6),
    }
)
"""Bytes that (a layer, the last norm) keeps for each number of the residual stream."""


@dataclass(frozen=True)
class _Activations:
    """Bytes that the backward pass needs for all layers and the last norm."""

    device: int
    """Activations on the device since the forward pass."""
    recomputed: int
    """Activations of one layer that are recomputed in the backward pass, or fetched from the host."""
    host: int
    """Activations on the host since the forward pass."""


@dataclass(frozen=True)
class _LayerActivations:
    """Bytes of one layer for each token."""

    full: int
    """All activations, without activation checkpointing."""
    checkpoint: int
    """Activations that a layer with activation checkpointing keeps."""
    recomputed: int
    """Activations that a layer with activation checkpointing recomputes."""


def _estimate_activations(setup: MemorySetup) -> _Activations:
    """Return the activations that forward passes keep for the backward pass."""
    shape, form = setup.shape, _find_form(setup)
    layer = _estimate_layer_activations(setup, form)
    norm = _STREAM_BYTES[_find_family(shape), form][1]
    checkpointed = _count_recomputed_layers(setup)
    layers = checkpointed * layer.checkpoint + (shape.num_hidden_layers - checkpointed) * layer.full
    recomputed = layer.recomputed if checkpointed else 0
    last_norm = setup.tokens * norm * shape.hidden_size
    if setup.activation_offload:
        return _Activations(last_norm, setup.tokens * max(recomputed, layer.full), setup.tokens * layers)
    return _Activations(setup.tokens * layers + last_norm, setup.tokens * recomputed, 0)


def _find_form(setup: MemorySetup) -> str:
    """Return the form of the arithmetic: `fp32`, `autocast`, or `cast` for parameters in the type of the arithmetic."""
    if setup.compute_bytes == FP32:
        return "fp32"
    return "autocast" if setup.scheme in ("none", "ddp") and setup.compute_bytes < setup.stored_bytes else "cast"


def _find_family(shape: ModelShape) -> str:
    return "gpt_neox" if shape.architecture == "gpt_neox" else "llama"


def _estimate_layer_activations(setup: MemorySetup, form: str) -> _LayerActivations:
    shape, width = setup.shape, setup.compute_bytes
    is_neox = shape.architecture == "gpt_neox"
    softmax_sums = FP32 * shape.num_attention_heads  # the logarithms of the softmaxes' sums
    full = _STREAM_BYTES[_find_family(shape), form][0] * shape.hidden_size + softmax_sums
    # llama: k and v, then gate, its SiLU, up, their product. gpt_neox: before and after GELU.
    full += 2 * width * shape.intermediate_size if is_neox else 4 * width * shape.intermediate_size
    # With a window, attention gets a mask, and transformers repeats k and v for every head (sdpa_attention.py).
    is_masked = bool(shape.sliding_window and setup.sequence_length > shape.sliding_window)
    heads = shape.num_attention_heads if is_masked else shape.key_value_heads
    full += 0 if is_neox else 2 * width * heads * shape.head_dim
    full += width * setup.sequence_length if is_masked else 0
    layer_input = shape.hidden_size * (2 if form == "cast" else FP32)
    if setup.recompute != "cheap":
        return _LayerActivations(full, layer_input, full)
    # q, k, v and the output of the attention, then gate and up. The products that lead back to the residual stream are dropped.
    products = (4 if is_neox else 2) * shape.hidden_size + (1 if is_neox else 2) * shape.intermediate_size
    products += 0 if is_neox else 2 * shape.key_value_heads * shape.head_dim
    checkpoint = layer_input + softmax_sums + width * (products + 2 * shape.hidden_size)
    return _LayerActivations(full, checkpoint, full - softmax_sums - width * products)


def _count_recomputed_layers(setup: MemorySetup) -> int:
    """Return the number of layers with activation checkpointing."""
    return -(-setup.shape.num_hidden_layers // setup.recompute_every) if setup.activation_checkpointing else 0


def count_layer_parameters(shape: ModelShape) -> int:
    """Return the number of parameters of one decoder layer."""
    norms = shape.hidden_size * (2 if shape.architecture == "gpt_neox" else 1)
    outside = count_embedding_parameters(shape) * (1 if shape.tie_word_embeddings else 2) + norms
    return (count_parameters(shape) - outside) // shape.num_hidden_layers


def _count_largest_unit(shape: ModelShape) -> int:
    """Return the number of parameters of the largest unit that is gathered at once (trainer/model.py, wrap_units)."""
    return max(count_layer_parameters(shape), count_embedding_parameters(shape))


def _count_lookup_parameters(shape: ModelShape) -> int:
    """Return the number of parameters outside every matrix product: an embedding that is not also the head."""
    return 0 if shape.tie_word_embeddings else count_embedding_parameters(shape)


def _divide(size: int, ranks: int) -> int:
    return -(-size // ranks)
