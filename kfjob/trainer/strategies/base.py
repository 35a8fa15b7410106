"""What the training loop asks of a strategy, and the strategy of a single process, which the others build upon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from kfjob.spec.train import TrainSpec
from kfjob.trainer.checkpoint import ModelState, State
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.optim import make_optimizer

COMPUTE = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "bf16-true": torch.bfloat16}
"""Type of the arithmetic in matrix products, for each precision."""


class Strategy(Protocol):
    """What the loop asks of a strategy, in the order in which it asks."""

    def plan(self, model: nn.Module) -> None:
        """Look at the whole model before it has weights."""

    def wrap_unit(self, unit: nn.Module) -> None:
        """Take charge of a part of the model whose weights have just been made."""

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Take charge of what is left and return what the loop calls."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of what `wrap_model` returned."""

    def forward_backward(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        """Around one micro-batch; `last` of its step."""

    def autocast(self) -> AbstractContextManager[object]:
        """Around a forward pass."""

    def backward(self, model: nn.Module, loss: Tensor) -> None:
        """Add the gradient of `loss`, this rank's sum divided by the tokens of all ranks."""

    def clip(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor | None:
        """Limit the whole gradient's norm, and return what it was; None where `update` tells it, or fp16 has overflowed."""

    def update(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor | None:
        """Take the step and forget the gradients; the norm, where `clip` did not know it."""

    def skip(self, optimizer: torch.optim.Optimizer) -> None:
        """Forget the gradients instead."""

    def held(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
        """The tensors of both, for checkpoints."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold beside model and optimiser. Small, and the same on every rank."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""

    def finish(self) -> None:
        """Say what is to be said when the last step is done."""


class Single:
    """One process, nothing exchanged."""

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Compute in what the spec says: by autocast, or with parameters of that type."""
        self._spec, self._device = spec, ranks.device
        self._scale = 1.0
        self._overflow: Tensor | None = None
        # fp16 has no small numbers: the loss is scaled up, and a step with an overflow is left out (torch's own rule)
        self._scaler = torch.amp.GradScaler(ranks.device.type, enabled=spec.precision == "fp16")

    def plan(self, model: nn.Module) -> None:
        """Nothing depends on it."""

    def wrap_unit(self, unit: nn.Module) -> None:
        """Leave it."""

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Leave it."""
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW."""
        return make_optimizer(model, self._spec)

    def forward_backward(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:  # noqa: ARG002 -- the protocol's
        """Nothing to do."""
        return nullcontext()

    def autocast(self) -> AbstractContextManager[object]:
        """Matrix products in 16 bits, where parameters are in fp32."""
        if self._spec.precision in ("fp32", "bf16-true"):
            return nullcontext()
        return torch.autocast(self._device.type, dtype=COMPUTE[self._spec.precision])

    def backward(self, model: nn.Module, loss: Tensor) -> None:  # noqa: ARG002 -- the protocol's
        """Through autograd."""
        torch.autograd.backward(self._scaler.scale(loss * self._scale))

    def clip(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor | None:
        """As torch does, on sharded tensors too."""
        self._scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self._spec.grad_clip or float("inf"))
        self._overflow = norm if self._scaler.is_enabled() and not math.isfinite(norm) else None
        return norm if self._overflow is None else None

    def update(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor | None:  # noqa: ARG002 -- the protocol's
        """Unless fp16 has overflowed, which is no fault of the run: the scale is lower then."""
        self._scaler.step(optimizer)
        self._scaler.update()
        optimizer.zero_grad()
        return self._overflow

    def skip(self, optimizer: torch.optim.Optimizer) -> None:
        """Zero them; a loss scale takes note of what `clip` has seen."""
        self._scaler.update()
        optimizer.zero_grad()

    def held(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
        """As torch names them."""
        return ModelState(model, optimizer)

    def state(self) -> dict[str, Any]:
        """The scale of the loss."""
        return dict(self._scaler.state_dict())

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set the scale of the loss, if this run and the one before have one."""
        if state and self._scaler.is_enabled():
            self._scaler.load_state_dict(dict(state))

    def finish(self) -> None:
        """Nothing."""
