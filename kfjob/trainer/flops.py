"""Model FLOPs utilisation of a run; `kfjob.trainspec.flops` has the formula and the peaks of the devices."""

from __future__ import annotations

from typing import Any

import torch

from kfjob.trainer.experts import count_idle
from kfjob.trainer.shapes import unwrap
from kfjob.trainspec.flops import flops_per_token, peak_flops
from kfjob.trainspec.train_spec import TrainSpec


def model_flops_per_token(model: Any, parameters: int, sequence_length: int, *, frozen: int = 0) -> float:
    """Return the FLOPs per token of a transformers model, wrapped or not.

    `parameters` is its number of parameters, `frozen` the number of those that are not trained.
    """
    config, idle = unwrap(model).config, count_idle(model)
    frozen = max(0, frozen - idle) if frozen else 0  # adapters freeze every expert
    parameters -= idle
    heads = config.num_attention_heads
    tied = getattr(config, "tie_word_embeddings", False)
    embedding = 0 if tied else config.vocab_size * config.hidden_size
    return flops_per_token(
        parameters=parameters,
        embedding=embedding,
        frozen=max(0, frozen - embedding),
        layers=config.num_hidden_layers,
        heads=heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        sequence_length=sequence_length,
    )


def device_peak_flops(spec: TrainSpec, device: torch.device) -> float | None:
    """Return the peak FLOPs per second of a device: the spec's, else those of the table."""
    if spec.peak_tflops:
        return spec.peak_tflops * 1e12
    return peak_flops(torch.cuda.get_device_name(device), spec.precision) if device.type == "cuda" else None
