"""AdamW with two parameter groups, and the learning rate of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kfjob.trainer.shapes import full_shape
from kfjob.trainer.stochastic_rounding import StochasticAdamW
from kfjob.trainspec.train_spec import TrainSpec, resolve_final_lr, resolve_warmup_steps


def make_optimizer(model: nn.Module, spec: TrainSpec) -> torch.optim.AdamW:
    """Return fused AdamW: matrices have weight decay; norms and biases, which have one dimension, do not.

    Parameters in bf16 get one that rounds stochastically, unless the spec wants rounding to the nearest value.
    """
    groups = parameter_groups(model.parameters(), spec)
    if spec.precision == "bf16-true" and spec.rounding == "stochastic":
        return StochasticAdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, seed=spec.seed)
    return torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True)


def parameter_groups(parameters: Iterable[nn.Parameter], spec: TrainSpec) -> list[dict[str, Any]]:
    """Return the groups with and without weight decay; empty groups are omitted."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if decays(parameter)], "weight_decay": spec.weight_decay},
        {"params": [parameter for parameter in trained if not decays(parameter)], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def decays(parameter: nn.Parameter) -> bool:
    """Return whether a parameter has weight decay: matrices do, norms and biases do not."""
    return len(full_shape(parameter)) >= 2


def compute_learning_rate(step: int, total_steps: int, spec: TrainSpec, *, factor: float = 1.0) -> float:
    """Return the learning rate from `step` to `step + 1`: linear warm-up from lr / warm-up steps, then the schedule.

    The last step (`total_steps` - 1), or step `lr_decay_iters`, has the final rate, and so have later ones. `factor` is that of
    `ReduceOnPlateau`.
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
    progress = min(1.0, max(0.0, (step - begin) / max(1, last - begin)))
    if spec.schedule == "exponential":
        return float(spec.lr * (low / spec.lr) ** progress)
    share = (1 + math.cos(math.pi * progress)) / 2 if spec.schedule == "cosine" else 1 - progress
    return low + (spec.lr - low) * share


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = lr


@dataclass
class ReduceOnPlateau:
    """The factor of schedule `plateau`: reduced after more than `patience` evaluations without progress."""

    patience: int
    reduction: float
    factor: float = 1.0
    best: float = math.inf
    bad_evaluations: int = 0

    def step(self, loss: float) -> None:
        """Record an evaluation; progress means a loss lower by 0.01 % (as in torch's ReduceLROnPlateau)."""
        if loss < self.best * (1 - 1e-4):
            self.best, self.bad_evaluations = loss, 0
            return
        self.bad_evaluations += 1
        if self.bad_evaluations > self.patience:
            self.factor, self.bad_evaluations = self.factor * self.reduction, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint; empty before the first evaluation."""
        if not math.isfinite(self.best):
            return {}
        return {"factor": self.factor, "best": self.best, "borne": self.bad_evaluations}  # the name in checkpoints

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned; an empty one is that before the first evaluation."""
        self.factor, self.best, self.bad_evaluations = (
            (state["factor"], state["best"], state["borne"]) if state else (1.0, math.inf, 0)
        )
