"""AdamW with and without weight decay, and the learning rate of a step."""

from __future__ import annotations

import math

import torch
from torch import nn

from kfjob.spec.train import TrainSpec, final_lr, warmup_steps


def make_optimizer(model: nn.Module, spec: TrainSpec) -> torch.optim.AdamW:
    """Matrices decay; norms and biases, which have one dimension, do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": spec.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    present = [group for group in groups if group["params"]]
    return torch.optim.AdamW(present, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True)


def learning_rate(step: int, total_steps: int, spec: TrainSpec) -> float:
    """The rate of the update from `step` to `step + 1`: linear warm-up from lr / warm-up steps, then the schedule to its end.

    The last update (step `total_steps` - 1) has the final rate.
    """
    warmup = warmup_steps(spec, total_steps)
    if step < warmup:
        return spec.lr * (step + 1) / warmup
    if spec.schedule == "constant":
        return spec.lr
    done = (step - warmup) / max(1, total_steps - 1 - warmup)
    share = (1 + math.cos(math.pi * done)) / 2 if spec.schedule == "cosine" else 1 - done
    return final_lr(spec) + (spec.lr - final_lr(spec)) * share


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every parameter group the rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr
