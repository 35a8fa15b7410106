"""The protocol of a strategy, and the strategy of a single process, on which torch's own strategies build."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kfjob.trainer.checkpoint import CheckpointState, ModelState
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.optim import make_optimizer
from kfjob.trainspec.train_spec import TrainSpec

COMPUTE_DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "bf16-true": torch.bfloat16,
    "fp8": torch.bfloat16,
}
"""The dtype of the arithmetic, for each precision; `kfjob.trainer.float8` casts the factors of some products once more."""

Accept = Callable[[Tensor], bool]
"""Decides whether to update, given the norm of the gradients."""


def accept_always(norm: Tensor) -> bool:
    """Accept without waiting for the device."""
    del norm
    return True


def clip_gradients(model: nn.Module, limit: float) -> Tensor:
    """Clip the global gradient norm unless `limit` is 0, and return the norm before, which every rank has in full."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
    if limit:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm)
    return norm


class Strategy(Protocol):
    """The methods that a run calls, in the order in which it calls them."""

    shards_units: bool
    """Whether `wrap` turns the parameters of each unit into DTensors before it reads the next unit."""

    def wrap(self, model: Any, units: Iterable[nn.Module]) -> nn.Module:
        """Wrap the model, and return the module that the loop calls.

        The last of the `units` is the model itself. Each has weights only once it is read from the iterator: a strategy that
        shards a unit before it reads the next one never holds the whole model.
        """

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimiser of the module that `wrap` returned."""

    def checkpoint_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> CheckpointState:
        """Return the tensors of both, for checkpoints."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""

    def accumulate(self, model: nn.Module, compute_loss: Callable[[], Tensor], *, last: bool) -> Tensor:
        """Accumulate the gradients of a micro-batch, and return its loss.

        The loss is this rank's sum divided by the tokens of all ranks. `last` marks the last micro-batch of a step.
        """

    def step(self, model: nn.Module, optimizer: torch.optim.Optimizer, accept: Accept = accept_always) -> Tensor:
        """Clip the gradients, update unless `accept` refuses, and zero the gradients; return the norm before clipping."""

    def state_dict(self) -> dict[str, Any]:
        """Return the loss scale of fp16, which is the same on every rank; empty without one."""


class SingleProcess:
    """One process without communication."""

    shards_units = False

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Compute in the spec's precision: with autocast, or with parameters of that dtype."""
        self._spec, self._device = spec, ranks.device
        self._gradient_scale = 1.0
        # fp16 cannot represent small numbers: the loss is scaled up, and a step that overflows is skipped (torch's own rule)
        self._scaler = torch.amp.GradScaler(ranks.device.type, enabled=spec.precision == "fp16")

    def wrap(self, model: Any, units: Iterable[nn.Module]) -> nn.Module:
        """Initialise all units; the model casts as the spec requires."""
        for _ in units:
            pass
        return self._with_autocast(model)

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return AdamW."""
        return make_optimizer(model, self._spec)

    def accumulate(self, model: nn.Module, compute_loss: Callable[[], Tensor], *, last: bool) -> Tensor:
        """Run autograd."""
        with self._synchronization(model, last=last):
            loss = compute_loss()
            torch.autograd.backward(self._scaler.scale(loss * self._gradient_scale))
        return loss.detach()

    def step(self, model: nn.Module, optimizer: torch.optim.Optimizer, accept: Accept = accept_always) -> Tensor:
        """Clip as torch does; a step with an fp16 overflow is normal: the scaler skips it, and the scale is lower next time."""
        self._scaler.unscale_(optimizer)
        norm = clip_gradients(model, self._spec.grad_clip)
        if accept(norm):
            self._scaler.step(optimizer)
        self._scaler.update()
        optimizer.zero_grad()
        return norm

    def _synchronization(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:  # noqa: ARG002 -- for others
        """Return the context of a micro-batch, in which the ranks exchange gradients as the strategy requires."""
        return nullcontext()

    def _with_autocast(self, model: nn.Module) -> nn.Module:
        """Make the outermost module compute in 16 bits if its parameters are in fp32. Its replicas use its own `forward`."""
        if self._spec.precision not in ("fp32", "bf16-true"):
            model.forward = torch.autocast(self._device.type, dtype=COMPUTE_DTYPES[self._spec.precision])(model.forward)
        return model

    def checkpoint_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> CheckpointState:
        """Return both by torch's own names."""
        return ModelState(model, optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loss scaler."""
        return dict(self._scaler.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the loss scaler, if this run and the one before have one; DeepSpeed's has other fields, and is ignored."""
        if state.keys() == self._scaler.state_dict().keys():
            self._scaler.load_state_dict(dict(state))
