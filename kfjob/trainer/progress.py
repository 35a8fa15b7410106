"""What a run has reached: every checkpoint stores it, a resume and a roll-back restore it, and the outcome names it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kfjob.trainer.checkpoint import Checkpoint
from kfjob.trainer.data.stream import Position
from kfjob.trainer.metrics import Outcome


@dataclass(kw_only=True)
class Progress:
    """The values of a run that change from step to step: the same on every rank but for `position`."""

    step: int = 0
    loss: float | None = None
    """The loss of the step; None before the first one, and while it is not read from the device."""
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

    def make_outcome(self, outcome: Literal["finished", "stopped", "failed"], reason: str | None = None) -> Outcome:
        """Return the outcome of a run that ends here; a run that fails before its first step has none."""
        return Outcome(
            outcome=outcome,
            step=None if outcome == "failed" and not self.step else self.step,
            loss=self.loss,
            checkpoint=self.committed.path if self.committed else None,
            reason=reason,
        )
