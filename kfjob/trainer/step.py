"""One optimiser step: the forward and backward passes of its micro-batches, the update, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from kfjob.trainer.anomalies import ACCEPT, AnomalyDetector, Verdict
from kfjob.trainer.data.batches import Batch, HostBatches
from kfjob.trainer.data.permutation import mix
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.loss import token_loss
from kfjob.trainer.stop_request import StopRequest
from kfjob.trainer.strategies import Strategy


@dataclass(frozen=True, kw_only=True)
class Step:
    """The result of a step, the same on every rank."""

    verdict: Verdict = ACCEPT
    loss: float | None = None
    """The mean over the tokens of all ranks; None if the step was not judged. After a stop that of the step before."""
    grad_norm: float | None = None
    """The global norm before clipping; None if the step was not judged."""


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
        self._finite = torch.ones((), device=ranks.device)
        self._unread: Tensor | None = None

    def take(self, step: int, micro_batches: HostBatches, *, judge: bool) -> Step:
        """Take the step after `step` steps. `judge` reads the loss and the norm, for which the host waits for the device.

        All ranks decide alike: to accept the step, to skip it, to roll back, or to stop before it. A stop drops the gradients
        of finished micro-batches, because a step may take longer than a launcher waits after its signal.

        Raises:
            KfjobError: the loss or the gradient norm is invalid, and the spec requires a stop.
        """
        # Randomness is a function of seed, step and rank, so checkpoints do not store its state.
        torch.manual_seed(mix(self._ranks.rank, mix(step, self._seed)))
        (tokens,) = self._ranks.all_reduce([micro_batches.targets / self._ranks.sharers])
        loss = torch.zeros((), device=self._ranks.device)
        batches = micro_batches.to(self._ranks.device)
        for number, batch in enumerate(batches):
            if reason := self._stop.ask(self._ranks):
                if number:
                    self._strategy.drop_gradients(self._optimizer)
                return Step(verdict=Verdict(action="stop", reason=reason), loss=self._read_unread_loss())
            compute_loss = partial(self._compute_loss, batch, tokens)
            loss += self._strategy.accumulate(self._model, compute_loss, last=number == len(batches) - 1)
        if self._anomalies.needs_every_step:
            return self._judge_and_update(step + 1, loss)
        norm = self._strategy.step(self._model, self._optimizer)
        self._finite *= loss.isfinite()
        if not self._anomalies.ignores_infinite_norm:
            self._finite *= norm.isfinite()
        self._unread = None if judge else loss
        return self._judge(step + 1, loss, norm) if judge else Step()

    def _read_unread_loss(self) -> float | None:
        """Return the loss of the last step if it was not judged."""
        if self._unread is None:
            return None
        (loss,) = self._ranks.all_reduce([float(self._unread)])
        return loss

    def _compute_loss(self, batch: Batch, tokens: float) -> Tensor:
        return token_loss(self._model, *batch) / tokens

    def _judge_and_update(self, number: int, loss: Tensor) -> Step:
        """Update unless the verdict refuses it; a norm that is known only after the update can only end the run."""
        result = Step()

        def accept(norm: Tensor | None) -> bool:
            nonlocal result
            result = self._judge(number, loss, norm)
            return result.verdict.action == "accept"

        norm = float(self._strategy.step(self._model, self._optimizer, accept))
        if result.grad_norm is None:
            self._anomalies.check_norm(number, norm)
        return replace(result, grad_norm=norm)

    def _judge(self, number: int, loss: Tensor, norm: Tensor | None) -> Step:
        """Judge a step, and every step since the last one that was judged."""
        values = [loss, self._finite] if norm is None else [loss, self._finite, norm]
        own_loss, finite, *norms = torch.stack([value.float().to(loss.device) for value in values]).tolist()
        global_loss, not_finite = self._ranks.all_reduce([own_loss, not finite])
        norm_value = norms[0] if norms else None
        verdict = self._anomalies.check(number, loss=global_loss, grad_norm=norm_value, finite=not not_finite)
        self._finite.fill_(1)
        return Step(verdict=verdict, loss=global_loss, grad_norm=norm_value)
