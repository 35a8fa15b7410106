"""The activations of a training step in bytes, for `trainspec/memory.py`. Pure.

They were counted tensor by tensor in transformers' llama, mistral, qwen2, gpt_neox, mixtral and qwen3_moe blocks, with
attention that never stores its scores (flash attention, which torch chooses without a mask).

A frozen layer keeps neither the input of its matrix product nor the normalised value of its norm, which only their gradients
need. An adapter keeps its input, in its own copy if PEFT casts it or drops out of it, and the product with its first matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from kfjob.trainspec.linear_layers import list_targets
from kfjob.trainspec.memory_setup import FP32, MemorySetup
from kfjob.trainspec.model_shapes import ModelShape

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


_INPUTS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "attention.query_key_value"), "attention"),
        **dict.fromkeys(("self_attn.o_proj", "attention.dense"), "attended"),
        **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj", "mlp.dense_h_to_4h"), "feed-forward"),
        **dict.fromkeys(("mlp.down_proj", "mlp.dense_4h_to_h"), "activated"),
    }
)
"""The tensor that each linear layer multiplies; some layers share theirs."""


class Activations(Struct, frozen=True):
    """Bytes that the backward pass needs for all layers and the last norm."""

    device: int
    """Activations on the device since the forward pass."""
    recomputed: int
    """Activations of one layer that are recomputed in the backward pass, or fetched from the host."""
    host: int
    """Activations on the host since the forward pass."""


class _LayerActivations(Struct, frozen=True):
    """Bytes of one layer for each token."""

    full: int
    """All activations, without activation checkpointing."""
    checkpoint: int
    """Activations that a layer with activation checkpointing keeps."""
    recomputed: int
    """Activations that a layer with activation checkpointing recomputes."""


def estimate_activations(setup: MemorySetup) -> Activations:
    """Return the activations that forward passes keep for the backward pass."""
    shape, form = setup.shape, _find_form(setup)
    layer = _estimate_layer_activations(setup, form)
    norm = _STREAM_BYTES[_find_family(shape), form][1] if setup.lora is None else FP32
    checkpointed = count_recomputed_layers(setup)
    layers = checkpointed * layer.checkpoint + (shape.num_hidden_layers - checkpointed) * layer.full
    recomputed = layer.recomputed if checkpointed else 0
    last_norm = setup.tokens * norm * shape.hidden_size
    if setup.activation_offload:
        return Activations(last_norm, setup.tokens * max(recomputed, layer.full), setup.tokens * layers)
    return Activations(setup.tokens * layers + last_norm, setup.tokens * recomputed, 0)


def _find_form(setup: MemorySetup) -> str:
    """Return the form of the arithmetic: `fp32`, `autocast`, or `cast` for parameters in the type of the arithmetic.

    A frozen base has the type of the arithmetic.
    """
    if setup.compute_bytes == FP32:
        return "fp32"
    return "autocast" if _casts_adapters(setup) and not setup.lora else "cast"


def _casts_adapters(setup: MemorySetup) -> bool:
    """Return whether autocast casts trained parameters for each matrix product."""
    return setup.scheme in ("none", "ddp") and setup.compute_bytes < setup.stored_bytes


def _find_family(shape: ModelShape) -> str:
    return "gpt_neox" if shape.architecture == "gpt_neox" else "llama"


def _estimate_layer_activations(setup: MemorySetup, form: str) -> _LayerActivations:
    shape, width = setup.shape, setup.compute_bytes
    is_neox = shape.architecture == "gpt_neox"
    softmax_sums = FP32 * shape.num_attention_heads  # the logarithms of the softmaxes' sums
    full = _STREAM_BYTES[_find_family(shape), form][0] * shape.hidden_size + softmax_sums
    full += 2 * width * (_query_width(shape) - shape.hidden_size)  # q and the output of the attention
    # llama: k and v, then gate, its SiLU, up, their product. gpt_neox: before and after GELU.
    full += (2 if is_neox else 4) * width * shape.feed_forward_size * shape.experts_per_token
    full += _estimate_routing(shape, width, form) if shape.num_experts else 0
    # With a window, attention gets a mask, and transformers repeats k and v for every head (sdpa_attention.py).
    is_masked = bool(shape.sliding_window and setup.sequence_length > shape.sliding_window)
    heads = shape.num_attention_heads if is_masked else shape.key_value_heads
    full += 0 if is_neox else 2 * width * heads * shape.head_size
    full += _estimate_exchange(setup) if setup.context_parallel > 1 else 0
    full += width * setup.sequence_length if is_masked else 0
    adapters, products_of_adapters = _estimate_adapters(setup)
    full += adapters
    layer_input = shape.hidden_size * (2 if form == "cast" else FP32)
    if setup.recompute != "cheap":
        return _LayerActivations(full, layer_input, full)
    # q, k, v and the output of the attention, then gate and up. The products that lead back to the residual stream are dropped,
    # except that of experts, which the weights of the router multiply.
    width_of_feed_forward = (1 if is_neox else 2) * shape.feed_forward_size * shape.experts_per_token
    products = (4 * shape.hidden_size if is_neox else 2 * _query_width(shape)) + width_of_feed_forward
    products += 0 if is_neox else 2 * shape.key_value_heads * shape.head_size
    products += shape.experts_per_token * shape.hidden_size if shape.num_experts else 0
    dropped = (1 if shape.num_experts else 2) * shape.hidden_size
    checkpoint = layer_input + softmax_sums + width * (products + dropped) + products_of_adapters
    return _LayerActivations(full, checkpoint, full - softmax_sums - width * products)


def _estimate_exchange(setup: MemorySetup) -> int:
    """Return the bytes that a layer keeps for each of a rank's tokens because ranks share samples.

    Keys and values of the whole samples, a second time the half of a rank's share if several samples are cut, and the output of
    the attention a second time. The rank's own keys and values are not kept; in gpt_neox these are fused with q.
    """
    shape, width, sharers = setup.shape, setup.compute_bytes, setup.context_parallel
    own = 2 * width * shape.key_value_heads * shape.head_size
    whole = own * sharers + (own // 2 if setup.micro_batch_size > 1 else 0)
    released = 4 * width * shape.hidden_size if shape.architecture == "gpt_neox" else own
    return whole - released + width * _query_width(shape)


def _query_width(shape: ModelShape) -> int:
    return shape.num_attention_heads * shape.head_size


def _estimate_routing(shape: ModelShape, width: int, form: str) -> int:
    """Return the bytes that a layer with experts keeps for each token beyond those of its feed-forward blocks.

    The inputs and outputs of the chosen experts, the logits and probabilities of the router, and the order of the tokens;
    qwen3_moe also has norms of q and k.
    """
    kept = 2 * width * shape.experts_per_token * shape.hidden_size
    kept += shape.experts * (2 * FP32 + width) + 48 * shape.experts_per_token
    kept -= 2 * shape.hidden_size if form == "autocast" else 0  # one cast of the input of gate and up
    if shape.architecture == "qwen3_moe":
        kept += (FP32 + width) * (_query_width(shape) + shape.key_value_heads * shape.head_size)
    return kept


def _estimate_adapters(setup: MemorySetup) -> tuple[int, int]:
    """Return the bytes that adapters change in one layer for each token, and the bytes of their matrix products."""
    shape, lora, width = setup.shape, setup.lora, setup.compute_bytes
    if lora is None:
        return 0, 0
    is_neox = shape.architecture == "gpt_neox"
    # without adapters: the normalised values (llama), the outputs of both norms, the input of the feed-forward block's last
    # layer, and the second output of the attention (gpt_neox)
    change = -width * ((3 if is_neox else 4) * shape.hidden_size + shape.feed_forward_size * shape.experts_per_token)
    if shape.num_experts:  # the inputs of the chosen experts
        change -= width * shape.experts_per_token * shape.hidden_size
    if shape.architecture == "qwen3_moe":  # the normalised q and k
        change -= width * (_query_width(shape) + shape.key_value_heads * shape.head_size)
    targets = list_targets(shape, lora)
    copies = _casts_adapters(setup) or lora.lora_dropout > 0
    shared = {_INPUTS[layer.name]: layer.inputs for layer in targets}
    inputs = [layer.inputs for layer in targets] if copies else list(shared.values())
    products = width * sum(lora.r + layer.outputs for layer in targets)
    change += width * (sum(inputs) + lora.r * len(targets))
    if not copies and not is_neox:  # the attention keeps the input of its output layer
        change -= width * sum(layer.inputs for layer in targets if layer.name == "self_attn.o_proj")
    if lora.lora_dropout:
        change += sum(inputs)  # masks
    return change, products


def count_recomputed_layers(setup: MemorySetup) -> int:
    """Return the number of layers with activation checkpointing."""
    return -(-setup.shape.num_hidden_layers // setup.recompute_every) if setup.activation_checkpointing else 0
