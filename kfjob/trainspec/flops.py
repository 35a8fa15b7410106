"""FLOPs of a model and of devices, for model FLOPs utilisation (MFU, Chowdhery et al. 2022, appendix B). Pure.

    MFU = tokens/s of a device x FLOPs per token / peak FLOPs of the device
    FLOPs per token = 6 (N - N_embedding) + 12 L h d s

N parameters, L layers, h heads of width d, s tokens in a sample: torchtitan's formula. An embedding that is only looked up does
not count; a tied one counts, because the head multiplies it. Of a model with experts only those that compute a token count. A
frozen parameter (of the base of LoRA adapters) counts 4 instead of 6: it needs no gradient of its own. The upper triangle that
causal attention skips counts, and what activation checkpointing recomputes does not. llm-foundry counts the embedding too:
6 N + 12 L h d s.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kfjob.trainspec.linear_layers import count_adapters, count_trained
from kfjob.trainspec.model_shapes import ModelShape, count_embedding_parameters, count_idle_parameters, count_parameters
from kfjob.trainspec.train_fields import LoraSpec

PEAK_FLOPS: Mapping[str, float] = MappingProxyType(
    {
        "H200": 989e12,
        "GH200": 989e12,
        "H100 PCIe": 756e12,
        "H100 NVL": 835e12,
        "H100": 989e12,
        "H800": 989e12,
        "B200": 2250e12,
        "A100": 312e12,
        "A800": 312e12,
        "A10G": 70e12,
        "A10": 125e12,
        "L40S": 362e12,
        "L4": 121e12,
        "V100": 125e12,
        "T4": 65e12,
    }
)
"""The makers' dense 16-bit FLOPs per second, by a part of the device's name; the first match counts."""


def flops_per_token(
    *, parameters: int, embedding: int, layers: int, heads: int, head_dim: int, sequence_length: int, frozen: int = 0
) -> float:
    """Return the FLOPs of forward and backward pass per token.

    `embedding` counts the parameters that are only looked up, `frozen` the others that are not trained.
    """
    return 6 * (parameters - embedding) - 2 * frozen + 12 * layers * heads * head_dim * sequence_length


def peak_flops(device_name: str, precision: str) -> float | None:
    """Return the peak FLOPs per second; None for unknown devices and for fp32, whose peak depends on TF32."""
    if precision == "fp32":
        return None
    return next((flops for part, flops in PEAK_FLOPS.items() if part in device_name), None)


def shape_flops_per_token(shape: ModelShape, sequence_length: int, lora: LoraSpec | None = None) -> float:
    """Return the FLOPs of forward and backward pass per token of a model's shape; with `lora` the model is frozen."""
    embedding = 0 if shape.tie_word_embeddings else count_embedding_parameters(shape)
    parameters = count_parameters(shape) - count_idle_parameters(shape) + (count_adapters(shape, lora) if lora else 0)
    return flops_per_token(
        parameters=parameters,
        embedding=embedding,
        frozen=parameters - embedding - count_trained(shape, lora) if lora else 0,
        layers=shape.num_hidden_layers,
        heads=shape.num_attention_heads,
        head_dim=shape.head_size,
        sequence_length=sequence_length,
    )
