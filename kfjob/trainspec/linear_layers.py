"""The linear layers of a decoder layer: which have adapters, compute in fp8 or are stored in 4 bits, and their sizes. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kfjob.trainspec.model_shapes import ModelShape
from kfjob.trainspec.train_fields import ALL_LINEAR, LoraSpec

FLOAT8_MULTIPLE = 16
"""Every width of a product in fp8 is a multiple of this number (torch 2.15 `_scaled_mm`; torchao 0.18 float8/README.md)."""
NF4_BLOCK = 64
"""Weights that share a scale, as in the paper (QLoRA, Dettmers et al. 2023, section 3)."""
NF4_SCALES = 256
"""Scales that share a scale of their own, as in the paper."""


class LinearLayer(Struct, frozen=True):
    """A linear layer in a decoder layer."""

    name: str
    """The path of the module in the decoder layer: `self_attn.q_proj`."""
    inputs: int
    outputs: int
    has_bias: bool = False

    def matches(self, names: tuple[str, ...]) -> bool:
        """Return whether one of the names is the end of the path (as in peft 0.21, check_target_module_exists)."""
        return any(f".{self.name}".endswith(f".{name}") for name in names)


def list_linear_layers(shape: ModelShape) -> tuple[LinearLayer, ...]:
    """Return the linear layers of one decoder layer in transformers' model."""
    hidden, wide = shape.hidden_size, shape.intermediate_size
    if shape.architecture == "gpt_neox":
        return (
            LinearLayer("attention.query_key_value", hidden, 3 * hidden, has_bias=True),
            LinearLayer("attention.dense", hidden, hidden, has_bias=True),
            LinearLayer("mlp.dense_h_to_4h", hidden, wide, has_bias=True),
            LinearLayer("mlp.dense_4h_to_h", wide, hidden, has_bias=True),
        )
    heads, groups = shape.num_attention_heads * shape.head_size, shape.key_value_heads * shape.head_size
    has_bias = shape.architecture == "qwen2"
    attention = (
        LinearLayer("self_attn.q_proj", hidden, heads, has_bias),
        LinearLayer("self_attn.k_proj", hidden, groups, has_bias),
        LinearLayer("self_attn.v_proj", hidden, groups, has_bias),
        LinearLayer("self_attn.o_proj", heads, hidden),
    )
    if shape.num_experts:  # the experts of a layer, and its router, are parameters without linear layers
        return attention
    return (
        *attention,
        LinearLayer("mlp.gate_proj", hidden, wide),
        LinearLayer("mlp.up_proj", hidden, wide),
        LinearLayer("mlp.down_proj", wide, hidden),
    )


def list_targets(shape: ModelShape, lora: LoraSpec) -> list[LinearLayer]:
    """Return the layers of one decoder layer that have an adapter."""
    layers = [layer for layer in list_linear_layers(shape) if not layer.matches(lora.exclude_modules)]
    return layers if ALL_LINEAR in lora.target_modules else [layer for layer in layers if layer.matches(lora.target_modules)]


def count_layer_trained(shape: ModelShape, lora: LoraSpec) -> int:
    """Return the number of trained parameters in one decoder layer: two matrices for each target, and biases."""
    targets = list_targets(shape, lora)
    with_bias = {"none": [], "lora_only": targets, "all": list_linear_layers(shape)}[lora.bias]
    norms = 2 * shape.hidden_size if lora.bias == "all" and shape.architecture == "gpt_neox" else 0
    biases = sum(layer.outputs for layer in with_bias if layer.has_bias) + norms
    return count_layer_adapters(shape, lora) + biases


def count_layer_adapters(shape: ModelShape, lora: LoraSpec) -> int:
    """Return the number of parameters that adapters add to one decoder layer."""
    return sum(lora.r * (layer.inputs + layer.outputs) for layer in list_targets(shape, lora))


def count_trained(shape: ModelShape, lora: LoraSpec) -> int:
    """Return the number of trained parameters of the model; with `bias: all` also that of GPT-NeoX's last norm."""
    last_norm = shape.hidden_size if lora.bias == "all" and shape.architecture == "gpt_neox" else 0
    return shape.num_hidden_layers * count_layer_trained(shape, lora) + last_norm


def count_adapters(shape: ModelShape, lora: LoraSpec) -> int:
    """Return the number of parameters that adapters add to the model."""
    return shape.num_hidden_layers * count_layer_adapters(shape, lora)


def can_use_float8(inputs: int, outputs: int) -> bool:
    """Return whether a linear layer of these widths can compute in fp8."""
    return inputs % FLOAT8_MULTIPLE == 0 and outputs % FLOAT8_MULTIPLE == 0


def count_float8_weights(shape: ModelShape) -> int:
    """Return the number of weights of one decoder layer that compute in fp8; biases do not."""
    return sum(
        layer.inputs * layer.outputs for layer in list_linear_layers(shape) if can_use_float8(layer.inputs, layer.outputs)
    )


def can_quantize(inputs: int, outputs: int) -> bool:
    """Return whether a linear layer of these widths can be quantised: torchao 0.18 has no incomplete blocks."""
    return inputs * outputs % (NF4_BLOCK * NF4_SCALES) == 0


def can_shard_nf4(outputs: int, inputs: int, ranks: int) -> bool:
    """Return whether a quantised weight can be divided among ranks: by rows, and by whole blocks of scales.

    One rank is refused too, because torchao 0.18 fails when FSDP2 gathers from one rank.
    """
    return ranks > 1 and outputs % ranks == 0 and inputs * outputs % (NF4_BLOCK * NF4_SCALES * ranks) == 0


def list_quantized(shape: ModelShape, lora: LoraSpec | None) -> list[LinearLayer]:
    """Return the quantised layers of one decoder layer."""
    if lora is None or lora.quantize is None:
        return []
    return [layer for layer in list_linear_layers(shape) if can_quantize(layer.inputs, layer.outputs)]


def count_nf4_bytes(layer: LinearLayer, width: int) -> int:
    """Return the bytes of a quantised weight: 4 bits a number, a byte a block, and `width` bytes for each block of scales."""
    weights = layer.inputs * layer.outputs
    return weights // 2 + weights // NF4_BLOCK + width * (weights // (NF4_BLOCK * NF4_SCALES))


def count_nf4_temporary_bytes(layers: Iterable[LinearLayer], width: int) -> int:
    """Return the bytes with which torchao writes out the largest of these weights (torchao 0.18 get_original_weight).

    Each index into the table of values is an int64, and there are three copies of the values.
    """
    return max((layer.inputs * layer.outputs for layer in layers), default=0) * (8 + 3 * width)
