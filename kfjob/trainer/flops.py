"""How much of a device's arithmetic a run uses: model FLOPs utilisation (MFU, Chowdhery et al. 2022, appendix B).

    MFU = tokens/s of a device x FLOPs for each token / peak FLOPs of the device
    FLOPs for each token = 6 (N - N_embedding) + 12 L h d s

N parameters, L layers, h heads of width d, s tokens in a sample: torchtitan's formula. Looking up an embedding is no
arithmetic; one that is the head too is multiplied, and counts. The triangle that causal attention leaves out counts as if it
were computed, and what activation checkpointing computes again does not count. llm-foundry counts the embedding too:
6 N + 12 L h d s.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from kfjob.spec.train import TrainSpec

PEAKS: Mapping[str, float] = MappingProxyType(
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
"""Dense 16-bit FLOPs a second that the makers state, by a part of the device's name; the first that fits."""


def per_token(*, parameters: int, embedding: int, layers: int, heads: int, head_dim: int, sequence_length: int) -> float:
    """FLOPs of forward and backward pass for a token; `embedding` are the parameters that are only looked up."""
    return 6 * (parameters - embedding) + 12 * layers * heads * head_dim * sequence_length


def of_model(model: Any, parameters: int, sequence_length: int) -> float:
    """`per_token` of a transformers model, wrapped or not, with so many parameters on all ranks together."""
    config = getattr(model, "module", model).config
    heads = config.num_attention_heads
    tied = getattr(config, "tie_word_embeddings", False)
    return per_token(
        parameters=parameters,
        embedding=0 if tied else config.vocab_size * config.hidden_size,
        layers=config.num_hidden_layers,
        heads=heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        sequence_length=sequence_length,
    )


def peak_of(spec: TrainSpec, device: torch.device) -> float | None:
    """FLOPs a second of a device at best, as the spec says or as is known."""
    if spec.peak_tflops:
        return spec.peak_tflops * 1e12
    return peak(torch.cuda.get_device_name(device), spec.precision) if device.type == "cuda" else None


def peak(device_name: str, precision: str) -> float | None:
    """FLOPs a second of a device at best; None where nobody has told, as for fp32, whose peak depends on TF32."""
    if precision == "fp32":
        return None
    return next((flops for part, flops in PEAKS.items() if part in device_name), None)


def utilisation(*, tokens_per_second: float, flops_per_token: float, peak_flops: float) -> float:
    """MFU of one device, as a share of 1."""
    return tokens_per_second * flops_per_token / peak_flops
