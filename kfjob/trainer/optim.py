"""AdamW with and without weight decay, and the learning rate of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kfjob.spec.train import TrainSpec, resolve_final_lr, resolve_warmup_steps
from kfjob.trainer.shapes import whole_shape


def make_optimizer(model: nn.Module, spec: TrainSpec) -> torch.optim.AdamW:
    """Fused AdamW: matrices decay; norms and biases, which have one dimension, do not."""
    return torch.optim.AdamW(groups(model.parameters(), spec), lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True)


def groups(parameters: Iterable[nn.Parameter], spec: TrainSpec) -> list[dict[str, Any]]:
    """The parameters that decay, and those that do not."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    found = [
        {"params": [p for p in trained if len(whole_shape(p)) >= 2], "weight_decay": spec.weight_decay},
        {"params": [p for p in trained if len(whole_shape(p)) < 2], "weight_decay": 0.0},
    ]
    return [group for group in found if group["params"]]


def learning_rate(step: int, total_steps: int, spec: TrainSpec, *, factor: float = 1.0) -> float:
    """The rate of the update from `step` to `step + 1`: linear warm-up from lr / warm-up steps, then the schedule to its end.

    The last update (step `total_steps` - 1), or that of step `lr_decay_iters`, has the final rate, and so have those after it.
    `factor` is what a plateau has made of the rate.
    """
    warmup, low = resolve_warmup_steps(spec, total_steps), resolve_final_lr(spec)
    if step < warmup:
        return spec.lr * (step + 1) / warmup
    if spec.schedule == "constant":
        return spec.lr
    if spec.schedule == "plateau":
        return max(low, spec.lr * factor)
    last = (spec.lr_decay_iters or total_steps) - 1
    begin = max(warmup, last - round(spec.decay_fraction * (last + 1))) if spec.schedule == "wsd" else warmup
    done = min(1.0, max(0.0, (step - begin) / max(1, last - begin)))
    if spec.schedule == "exponential":
        return float(spec.lr * (low / spec.lr) ** done)
    share = (1 + math.cos(math.pi * done)) / 2 if spec.schedule == "cosine" else 1 - done
    return low + (spec.lr - low) * share


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every parameter group the rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr


@dataclass
class Plateau:
    """The factor of schedule `plateau`: lower each time that `patience` evaluations and one more have brought no progress."""

    patience: int
    by: float
    factor: float = 1.0
    best: float = math.inf
    borne: int = 0

    def heard(self, loss: float) -> None:
        """Count an evaluation; progress is a loss lower by a part in ten thousand (torch's ReduceLROnPlateau)."""
        if loss < self.best * (1 - 1e-4):
            self.best, self.borne = loss, 0
            return
        self.borne += 1
        if self.borne > self.patience:
            self.factor, self.borne = self.factor * self.by, 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {"factor": self.factor, "best": self.best, "borne": self.borne} if math.isfinite(self.best) else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        for name, value in state.items():
            setattr(self, name, value)
