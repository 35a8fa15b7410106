"""One optimiser step: the forward and backward passes of its micro-batches, the decision about it, and the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kfjob.trainer.anomalies import ACCEPT, AnomalyDetector, Decision
from kfjob.trainer.data.permutation import mix
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.loss import count_targets, to_batch, token_loss
from kfjob.trainer.metrics import norm_to_float
from kfjob.trainer.stop_request import StopRequest
from kfjob.trainer.strategies import Strategy


@dataclass(frozen=True, kw_only=True)
class Step:
    """The result of a step, the same on every rank."""

    decision: Decision
    loss: float | None = None
    """The mean over the tokens of all ranks; None if the step was not checked."""
    grad_norm: Tensor | None = None
    """The global norm before clipping."""


class Stepper:
    """Takes the steps of a run."""

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        strategy: Strategy,
        anomalies: AnomalyDetector,
        stop: StopRequest,
        ranks: Ranks,
        seed: int,
    ) -> None:
        """Begin without anomalies."""
        self._model, self._optimizer, self._strategy = model, optimizer, strategy
        self._anomalies, self._stop, self._ranks, self._seed = anomalies, stop, ranks, seed
        self._finite = torch.ones((), dtype=torch.bool, device=ranks.device)

    def take(self, step: int, micro_batches: Sequence[npt.NDArray[np.int64]], *, check: bool) -> Step:
        """Take the step after `step` steps. `check` reads the loss, for which the host waits for the device.

        All ranks decide alike: to accept the step, to skip it, to roll back, or to stop before it. A stop drops the gradients
        of finished micro-batches, because a step may take longer than a launcher waits after its signal.

        Raises:
            KfjobError: the loss or the gradient norm is invalid, and the spec requires a stop.
        """
        if reason := self._stop.ask(self._ranks):
            return Step(decision=Decision(action="stop", reason=reason))
        # Randomness is a function of seed, step and rank, so checkpoints do not store its state.
        torch.manual_seed(mix(self._ranks.rank, mix(step, self._seed)))
        (tokens,) = self._ranks.all_reduce([sum(map(count_targets, micro_batches))])
        own_loss = torch.zeros((), device=self._ranks.device)
        for number, samples in enumerate(micro_batches):
            if number and (reason := self._stop.ask(self._ranks)):
                self._strategy.drop_gradients(self._optimizer)
                return Step(decision=Decision(action="stop", reason=reason))
            own_loss += self._accumulate(samples, tokens, last=number == len(micro_batches) - 1)
        return self._update(step + 1, own_loss, check=check or self._anomalies.needs_every_step)

    def _accumulate(self, samples: npt.NDArray[np.int64], tokens: float, *, last: bool) -> Tensor:
        """Accumulate the gradients of a micro-batch, and return its part of the loss."""
        batch = to_batch(samples, self._ranks.device)
        with self._strategy.micro_batch(self._model, last=last):
            with self._strategy.autocast():
                loss = token_loss(self._model, *batch) / tokens
            self._strategy.backward(self._model, loss)
        return loss.detach()

    def _update(self, number: int, own_loss: Tensor, *, check: bool) -> Step:
        """Take the optimiser step, unless a check of the loss and the gradient norm refuses it."""
        loss, decision = None, ACCEPT

        def accept(norm: Tensor | None) -> bool:
            nonlocal loss, decision
            self._finite &= own_loss.isfinite()
            if norm is not None and not self._anomalies.ignores_infinite_norm:
                self._finite &= norm.isfinite()
            if check:
                loss, not_finite = self._ranks.all_reduce([float(own_loss), not self._finite])
                own_norm = None if norm is None else norm_to_float(norm)
                decision = self._anomalies.check(number, loss=loss, grad_norm=own_norm, finite=not not_finite)
                self._finite.fill_(True)
            return decision.action == "accept"

        norm = self._strategy.step(self._model, self._optimizer, accept)
        return Step(decision=decision, loss=loss, grad_norm=norm)
