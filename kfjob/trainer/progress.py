"""What a run has reached: every checkpoint stores it, a resume and a roll-back restore it, and the outcome names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from kfjob.base.errors import AlreadyExists, KfjobError, Unreachable
from kfjob.trainer.data.stream import Position
from kfjob.trainer.distributed import PeerError, Ranks
from kfjob.trainer.lease import LostLeaseError
from kfjob.trainer.metrics import Outcome
from kfjob.trainer.storage import Checkpoint, Storage

_PASSING = (AlreadyExists, Unreachable)
"""Errors that may be over at the next start: another run that holds the checkpoints, a store or a hub that does not answer."""


@dataclass(kw_only=True)
class Progress:
    """The values of a run that change from step to step: the same on every rank but for `position`."""

    step: int = 0
    loss: float | None = None
    """The loss of the last accepted step; None before the first one, and while it is not read from the device."""
    position: Position = field(default_factory=dict)
    """This rank's place in the data, after the samples of the step."""
    evaluation_due: bool = False
    """Whether the evaluation after the step has not ended."""
    save_due: bool = False
    """Whether the step ends an interval between two checkpoints, and is not saved."""
    is_saved: bool = False
    """Whether a checkpoint of this run's storage holds all this."""
    committed: Checkpoint | None = None
    """The newest complete checkpoint of this run's storage."""
    rolled_back_to: int | None = None
    """The step of the last roll-back."""
    stop_reason: str | None = None
    """Why the run ends before its last step."""
    peer_failed_first: bool = False
    """Whether the outcome of the failed run is recorded already, by another rank."""

    def advance(self, position: Position, *, loss: float | None, evaluation_due: bool, save_due: bool) -> None:
        """Count a step, after which the samples end at `position`."""
        self.step, self.loss = self.step + 1, loss
        self.evaluation_due, self.save_due = evaluation_due, save_due
        self.pass_over(position)

    def pass_over(self, position: Position) -> None:
        """Take no samples before `position` any more: an earlier checkpoint would read them again."""
        self.position, self.is_saved = position, False

    def end_evaluation(self) -> None:
        """Note that the evaluation after the step has ended: it is logged, and has changed the learning rate."""
        self.evaluation_due = self.is_saved = False

    def note_commit(self, checkpoint: Checkpoint) -> None:
        """Note a complete checkpoint; the thread that wrote it calls this."""
        self.committed = checkpoint

    def make_outcome(self, error: Exception | None = None) -> Outcome:
        """Return the outcome of a run that ends here; one that has neither taken nor saved a step has no step."""
        reason = self.stop_reason
        if error:
            reason = error.title if isinstance(error, KfjobError) else f"{type(error).__name__}: {error}"
        return Outcome(
            outcome="failed" if error else "stopped" if self.stop_reason else "finished",
            step=self.step if self.step or self.is_saved else None,
            loss=self.loss,
            checkpoint=self.committed.path if self.committed else None,
            reason=reason,
            permanent=isinstance(error, KfjobError) and not isinstance(error, _PASSING) and not (self.step or self.is_saved),
        )


@contextmanager
def record_outcome(progress: Progress, storage: Storage, ranks: Ranks) -> Iterator[None]:
    """Record in `storage` how the block ends, in which the run has the lease of `storage`.

    Of several ranks that fail, the first one's record stays: the others fail because of it.

    Raises:
        KfjobError: the outcome of a run that did not fail cannot be written.
    """
    try:
        yield
    except (PeerError, LostLeaseError):  # the failing rank records it; without the lease the file is another run's
        raise
    except Exception as error:
        with suppress(KfjobError, OSError):  # the failure itself may be that the storage is not writable
            progress.peer_failed_first = not progress.make_outcome(error).write(storage, overwrite=False)
        raise
    if ranks.is_rank_zero:
        progress.make_outcome().write(storage, overwrite=True)
