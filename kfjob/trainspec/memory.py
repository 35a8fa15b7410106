"""The memory of one rank in bytes: the one formula for the check whether a model fits and for the trainer. Pure.

State that lasts for the whole training follows the ZeRO paper (Rajbhandari et al. 2020, section 3.1: parameters, gradients
and optimiser state, each whole or divided among the ranks that share it), with the types of this trainer: fp32 parameters,
gradients and AdamW moments for every precision of the arithmetic except `bf16-true`. DeepSpeed keeps bf16 or fp16 copies and
an fp32 master copy. With adapters (`lora`) only these have gradients and optimiser state; the frozen model has the type of the
arithmetic. With `fp8`, torchao keeps the inputs of its products in bf16 for the backward pass (torchao 0.18 float8_linear.py),
so only copies of weights are smaller. With `lora.quantize` the weights of the decoder's linear layers have 4 bits and their
scales; a product writes out one weight at a time.

tests/trainer/test_memory.py measures all parts and the peak of a step in processes of this trainer. For DeepSpeed, test_zero.py
measures the lasting state, on the host too; DeepSpeed's copies and other buffers come from the paper and the code alone. The
formula does not include fragmentation, workspaces of libraries and the CUDA context; `RESERVED` is an allowance for these.
"""

from __future__ import annotations

from msgspec import Struct

from kfjob.base.units import GIB
from kfjob.trainspec.activation_memory import count_recomputed_layers, estimate_activations
from kfjob.trainspec.linear_layers import (
    can_shard_nf4,
    count_layer_adapters,
    count_layer_trained,
    count_nf4_bytes,
    count_nf4_temporary_bytes,
    list_quantized,
)
from kfjob.trainspec.memory_setup import FP32, MemorySetup, Scheme
from kfjob.trainspec.model_shapes import ModelShape, count_embedding_parameters, count_parameters

RESERVED = 2 * GIB
"""Allowance on every GPU for memory outside the formula: CUDA context, cuBLAS workspace, NCCL's channels, fragmentation."""
HOST_PROCESS = 3 * GIB // 2
"""Allowance on the host for each training process: torch and its CUDA libraries, transformers, a data loader's buffers."""

_ADAM_STATES = 2
"""Values that AdamW keeps for each parameter: its two moments."""
_FSDP: tuple[Scheme, ...] = ("full", "shard_grad_op", "hybrid")
_BUCKET = 500_000_000
"""Elements of DeepSpeed's `allgather_bucket_size` and of its `reduce_bucket_size`."""


class MemoryEstimate(Struct, frozen=True, kw_only=True):
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


def estimate_memory(setup: MemorySetup) -> MemoryEstimate:
    """Return the memory of the rank that needs most."""
    state, copies, buffers = _estimate_state(setup), _estimate_copies(setup), _estimate_buffers(setup)
    activations = estimate_activations(setup)
    logits = _estimate_logits(setup)
    device_state, host_state = _split_state(setup, state)
    lasting = device_state.parameters + device_state.optimizer + copies
    temporary = count_nf4_temporary_bytes(list_quantized(setup.shape, setup.lora), setup.compute_bytes)
    forward = activations.device + max(logits, activations.recomputed + temporary)
    backward = device_state.gradients + buffers
    keeps_gradients = setup.scheme not in ("none", *_FSDP) or setup.accumulation > 1
    step = forward + backward if keeps_gradients else max(forward + buffers, activations.recomputed + temporary + backward)
    return MemoryEstimate(
        parameters=device_state.parameters,
        gradients=device_state.gradients,
        optimizer=device_state.optimizer,
        copies=copies + temporary,
        activations=activations.device + activations.recomputed,
        logits=logits,
        buffers=buffers,
        host=HOST_PROCESS + _count_largest_unit(setup) * FP32 + host_state + activations.host,
        peak=lasting + step,
    )


def keeps_whole_gradients(setup: MemorySetup) -> bool:
    """Return whether every rank keeps all gradients between micro-batches, although the parameters are sharded."""
    return setup.scheme in _FSDP and setup.accumulation > 1 and setup.accumulate == "whole"


class _State(Struct, frozen=True):
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
    trained, ranks, width = setup.trained, setup.world_size, setup.stored_bytes
    frozen, states = setup.frozen * setup.compute_bytes, _ADAM_STATES * width
    sharded, whole = _count_quantized_bytes(setup)
    layers = setup.shape.num_hidden_layers
    parameters = trained * width + frozen - layers * (_count_quantized(setup) * setup.compute_bytes - sharded)
    if setup.scheme in ("none", "ddp"):
        return _State(parameters + layers * whole, trained * width, trained * states)
    if setup.scheme in _FSDP:
        sharers = _count_sharers(setup)
        gradients = trained * FP32 if keeps_whole_gradients(setup) else _divide(trained * width, sharers)
        return _State(_divide(parameters, sharers) + layers * whole, gradients, _divide(trained * states, sharers))
    stage = int(setup.scheme[-1])
    return _State(
        _divide(trained * setup.compute_bytes + frozen, ranks if stage >= 3 else 1),  # noqa: PLR2004 - the stage
        _divide(trained * setup.compute_bytes, ranks if stage >= 2 else 1),  # noqa: PLR2004 - the stage
        _divide(trained * (states + FP32), ranks),
    )


def _count_sharers(setup: MemorySetup) -> int:
    """Return the number of ranks among which FSDP divides a parameter."""
    return setup.local_world_size if setup.scheme == "hybrid" else setup.world_size


def _count_quantized(setup: MemorySetup) -> int:
    """Return the number of weights in 4 bits of one decoder layer."""
    return sum(layer.inputs * layer.outputs for layer in list_quantized(setup.shape, setup.lora))


def _count_quantized_bytes(setup: MemorySetup) -> tuple[int, int]:
    """Return the bytes of one decoder layer's quantised weights: those that FSDP divides, and those whole on every rank."""
    sharers = _count_sharers(setup) if setup.scheme in _FSDP else 1
    sizes = [0, 0]
    for layer in list_quantized(setup.shape, setup.lora):
        sizes[0 if can_shard_nf4(layer.outputs, layer.inputs, sharers) else 1] += count_nf4_bytes(layer, setup.compute_bytes)
    return sizes[0], sizes[1]


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
    part = _divide(setup.trained, setup.world_size)
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
        if width == setup.stored_bytes or setup.lora:
            return setup.adapters * width if width < setup.stored_bytes else 0
        cast = count_layer_parameters(shape) - setup.float8_weights  # what fp8 multiplies is cast for one product only
        released = count_layer_parameters(shape) * shape.num_hidden_layers - cast * _count_kept_casts(setup)
        return (count_parameters(shape) - _count_lookup_parameters(shape) - released) * width
    if setup.scheme in ("zero-1", "zero-2"):
        return 0
    if setup.scheme == "shard_grad_op":
        return (setup.frozen + setup.trained) * width - shape.num_hidden_layers * _spare(setup)
    layer = _gather_layer(setup)
    if shape.tie_word_embeddings:
        return count_embedding_parameters(shape) * width + 2 * layer
    return _gather_largest_unit(setup) + layer


def _count_kept_casts(setup: MemorySetup) -> int:
    """Return the number of layers whose casts for autocast exist at once: of the recomputed ones that is one."""
    return setup.shape.num_hidden_layers - max(0, count_recomputed_layers(setup) - 1)


def _spare(setup: MemorySetup) -> int:
    """Return the bytes that a gathered layer saves because FSDP gathers weights in fp8 or in 4 bits instead of bf16."""
    if setup.scheme not in _FSDP:
        return 0
    quantized = _count_quantized(setup) * setup.compute_bytes - _count_quantized_bytes(setup)[0]
    return quantized + (setup.float8_weights * (setup.compute_bytes - 1) if setup.fp8_recipe == "tensorwise" else 0)


def _gather_layer(setup: MemorySetup) -> int:
    """Return the bytes of one decoder layer that FSDP or ZeRO-3 has gathered."""
    return _count_adapted_layer(setup) * setup.compute_bytes - _spare(setup)


def _gather_largest_unit(setup: MemorySetup) -> int:
    """Return the bytes of the largest gathered unit (trainer/model.py, find_wrap_units)."""
    return max(_gather_layer(setup), count_embedding_parameters(setup.shape) * setup.compute_bytes)


def _estimate_buffers(setup: MemorySetup) -> int:
    """Return the bytes of buffers for collectives.

    FSDP copies a unit's gathered shards, the gradient of what is trained in it and the fp32 input of the reduction. Ranks that
    share samples copy the keys and values of a layer, and their gradients in fp32.
    """
    width, exchanged = setup.compute_bytes, 0
    if setup.context_parallel > 1:
        numbers = 2 * setup.tokens * setup.context_parallel * setup.shape.key_value_heads * setup.shape.head_size
        exchanged = numbers * (2 * width + FP32)
    return exchanged + _estimate_state_buffers(setup, width)


def _estimate_state_buffers(setup: MemorySetup, width: int) -> int:
    """Return the bytes of buffers in which the ranks exchange parameters and gradients."""
    trained = count_layer_trained(setup.shape, setup.lora) if setup.lora else _count_largest_unit(setup)
    unit = _gather_largest_unit(setup) + trained * (width + FP32)
    if setup.scheme == "zero-3":  # DeepSpeed allocates the bucket of the reduction at the start, for every model size
        return _BUCKET * width + (unit if setup.world_size > 1 else 0)
    if setup.world_size == 1 or setup.scheme in ("none", "ddp"):
        return 0  # DDP's buckets are the gradients themselves (gradient_as_bucket_view)
    if setup.scheme in ("zero-1", "zero-2"):
        return min(setup.trained, 2 * _BUCKET) * width
    return unit


def _estimate_logits(setup: MemorySetup) -> int:
    """Return the bytes of the loss: logits, their gradient and the values between them.

    A loss in chunks also holds the gradients of the head, unless that is frozen, and of the hidden states, which it computes at
    once (trainer/loss.py).
    """
    shape, width = setup.shape, setup.compute_bytes
    if not setup.loss_chunk:
        return 3 * FP32 * setup.tokens * shape.vocab_size
    chunk = min(setup.tokens, setup.loss_chunk) * shape.vocab_size * (FP32 + (width if width < FP32 else 0))
    head = 0 if setup.lora else shape.vocab_size * shape.hidden_size * (FP32 + width)
    return chunk + head + setup.tokens * shape.hidden_size * width


def count_layer_parameters(shape: ModelShape) -> int:
    """Return the number of parameters of one decoder layer."""
    norms = shape.hidden_size * (2 if shape.architecture == "gpt_neox" else 1)
    outside = count_embedding_parameters(shape) * (1 if shape.tie_word_embeddings else 2) + norms
    return (count_parameters(shape) - outside) // shape.num_hidden_layers


def _count_adapted_layer(setup: MemorySetup) -> int:
    """Return the number of parameters of one decoder layer with its adapters."""
    return count_layer_parameters(setup.shape) + (count_layer_adapters(setup.shape, setup.lora) if setup.lora else 0)


def _count_largest_unit(setup: MemorySetup) -> int:
    """Return the number of parameters of the largest unit that is gathered at once (trainer/model.py, find_wrap_units)."""
    return max(_count_adapted_layer(setup), count_embedding_parameters(setup.shape))


def _count_lookup_parameters(shape: ModelShape) -> int:
    """Return the number of parameters outside every matrix product: an embedding that is not also the head."""
    return 0 if shape.tie_word_embeddings else count_embedding_parameters(shape)


def _divide(size: int, ranks: int) -> int:
    return -(-size // ranks)
