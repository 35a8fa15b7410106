"""One optimiser step: the forward and backward passes of its micro-batches, the update, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from kfjob.trainer.anomalies import ACCEPT, AnomalyDetector, Verdict
from kfjob.trainer.data.batches import Batch, HostBatches
from kfjob.trainer.data.permutation import mix
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.loss import token_loss
from kfjob.trainer.stop_request import StopRequest
from kfjob.trainer.strategies import Strategy, accept_always


@dataclass(frozen=True, kw_only=True)
class Step:
    """The result of a step, the same on every rank. Without a judgement it is accepted, and its numbers are not read."""

    verdict: Verdict = ACCEPT
    loss: float | None = None
    """The mean over the tokens of all ranks."""
    grad_norm: float | None = None
    """The global norm before clipping."""
    stop_reason: str | None = None
    """Why the run stops before this step, which is then not taken."""


class Stepper:
    """Takes the steps of a run. What it keeps between two steps is on the device, so that the host need not wait."""

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
        """1 while every loss and norm of this rank is finite; a run that does not judge every step ends with the first 0."""
        self._unread: Tensor | None = None
        """This rank's part of the loss of the last step, if that was not judged."""

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
                self._optimizer.zero_grad()
                return Step(stop_reason=reason)
            compute_loss = partial(self._compute_loss, batch, tokens)
            loss += self._strategy.accumulate(self._model, compute_loss, last=number == len(batches) - 1)

        result: Step | None = None

        def accept(norm: Tensor) -> bool:
            nonlocal result
            result = self._judge(step + 1, loss, norm)
            return result.verdict.action != "skip"

        norm = self._strategy.step(self._model, self._optimizer, accept if self._anomalies.may_skip else accept_always)
        if result is None and (judge or self._anomalies.needs_every_step):
            result = self._judge(step + 1, loss, norm)
        self._unread = None if result else loss
        if result is None:
            self._note_finite(loss, norm)
        return result or Step()

    def read_loss(self) -> float | None:
        """Return the loss of the last step if it was not judged, else None; every rank calls it."""
        if self._unread is None:
            return None
        (loss,) = self._ranks.all_reduce([float(self._unread)])
        return loss

    def _compute_loss(self, batch: Batch, tokens: float) -> Tensor:
        return token_loss(self._model, *batch) / tokens

    def _note_finite(self, loss: Tensor, norm: Tensor) -> None:
        """Note on the device whether the numbers of a step that is not judged are finite."""
        self._finite *= loss.isfinite()
        if not self._anomalies.ignores_infinite_norm:
            self._finite *= norm.isfinite()

    def _judge(self, number: int, loss: Tensor, norm: Tensor) -> Step:
        """Judge a step, and every step since the last one that was judged."""
        numbers = torch.stack([value.float().to(loss.device) for value in (loss, norm, self._finite)])
        own_loss, norm_value, finite = numbers.tolist()
        global_loss, not_finite = self._ranks.all_reduce([own_loss, not finite])
        verdict = self._anomalies.check(number, loss=global_loss, grad_norm=norm_value, finite=not not_finite)
        return Step(verdict=verdict, loss=global_loss, grad_norm=norm_value)
