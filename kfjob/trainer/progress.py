"""What a run has reached: every checkpoint stores it, and a resume and a roll-back restore it."""

from __future__ import annotations

from dataclasses import replace

from kfjob.trainer.checkpoint import Checkpoint
from kfjob.trainer.checkpoint_writer import CheckpointWriter
from kfjob.trainer.data.stream import Position, merge_positions
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.optim import ReduceOnPlateau
from kfjob.trainer.strategies import Strategy


class Progress:
    """The step that a run has reached, and what is saved beside the tensors: the same on every rank but for `position`."""

    def __init__(
        self,
        run: Manifest,
        writer: CheckpointWriter | None,
        strategy: Strategy,
        plateau: ReduceOnPlateau,
        ranks: Ranks,
        *,
        position: Position,
        evaluates: bool,
    ) -> None:
        """Begin before the first step. `run` is the manifest of the run, and `writer` saves, if the run has checkpoints."""
        self._run, self._writer, self._strategy, self._plateau, self._ranks = run, writer, strategy, plateau, ranks
        self._evaluates = evaluates
        self.step = 0
        self.loss: float | None = None
        self.position = position
        """This rank's place in the data, after the samples of the step."""
        self.evaluation_due = False
        """Whether the evaluation after the step has not ended."""
        self.saved: Checkpoint | None = None
        """The newest checkpoint of this run's storage."""
        self.is_saved = False
        """Whether it holds all this."""

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint whose tensors are loaded; the position in the data stays."""
        manifest = checkpoint.manifest
        self._strategy.load_state_dict(manifest.loss_scale)
        self._plateau.load_state_dict(manifest.plateau)
        self.step, self.loss = manifest.step, manifest.loss
        self.evaluation_due = manifest.evaluation_due and self._evaluates
        is_own = self._writer is not None and checkpoint.storage == self._writer.storage
        self.saved = checkpoint if is_own else None
        self.is_saved = is_own

    def advance(self, position: Position) -> None:
        """Count a step, after which the samples end at `position`."""
        self.step += 1
        self.pass_over(position)

    def pass_over(self, position: Position) -> None:
        """Take no samples before `position` any more: a checkpoint of before would read them again."""
        self.position, self.is_saved = position, False

    def end_evaluation(self) -> None:
        """Note that the evaluation after the step has ended: it is logged, and has changed the learning rate."""
        self.evaluation_due = self.is_saved = False

    def save(self) -> None:
        """Save all this and the tensors, if the run has checkpoints."""
        self.is_saved = True
        if self._writer is None:
            return
        merged = merge_positions(self._ranks.all_gather(self.position)[:: self._ranks.sharers])
        self.saved = self._writer.save(
            replace(
                self._run,
                step=self.step,
                loss=self.loss,
                data_position=merged,
                evaluation_due=self.evaluation_due,
                loss_scale=self._strategy.state_dict(),
                plateau=self._plateau.state_dict(),
            )
        )
