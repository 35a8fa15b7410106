"""The parts of a run, and what it does between two steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

from kfjob.base.errors import KfjobError
from kfjob.base.text import plural
from kfjob.trainer import metrics
from kfjob.trainer.checkpoint import CheckpointState
from kfjob.trainer.checkpoint_writer import CheckpointWriter
from kfjob.trainer.data.prefetch import Prefetcher
from kfjob.trainer.data.sources import RunData
from kfjob.trainer.data.stream import SampleStream, merge_positions
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.evaluate import evaluate
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.metrics import log
from kfjob.trainer.optim import ReduceOnPlateau
from kfjob.trainer.progress import Progress
from kfjob.trainer.resume import roll_back
from kfjob.trainer.stop_request import StopRequest
from kfjob.trainer.storage import Checkpoint
from kfjob.trainer.strategies import Strategy
from kfjob.trainer.trackers import Trackers
from kfjob.trainspec.train_spec import TrainSpec


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """The parts of a run, and what it does between two steps. Its parts stay; what is in them changes."""

    spec: TrainSpec
    """With the defaults of the device."""
    ranks: Ranks
    stop: StopRequest
    data: RunData
    eval_batch_size: int
    model: nn.Module
    optimizer: torch.optim.Optimizer
    strategy: Strategy
    state: CheckpointState
    plateau: ReduceOnPlateau
    trackers: Trackers
    writer: CheckpointWriter | None
    """None without a `checkpoint_dir`."""
    manifest: Manifest
    """The manifest before the first step."""
    progress: Progress

    @property
    def global_batch(self) -> int:
        """The number of samples in an optimiser step, over all ranks."""
        return self.manifest.global_batch

    def evaluate(self) -> str | None:
        """Evaluate and log the result; return the reason of a stop that interrupted it."""
        evaluation = evaluate(
            self.model, self.data.validation, batch_size=self.eval_batch_size, ranks=self.ranks, stop=self.stop
        )
        if evaluation is None:
            return self.stop.ask(self.ranks)
        log.info(metrics.evaluation_line(self.progress.step, loss=evaluation.loss, tokens=evaluation.tokens))
        self.trackers.log_metrics(self.progress.step, eval_loss=evaluation.loss, eval_tokens=evaluation.tokens)
        self.plateau.step(evaluation.loss)
        self.progress.end_evaluation()
        return None

    def save(self) -> None:
        """Save the progress and the tensors, if the run has checkpoints."""
        progress = self.progress
        progress.save_due, progress.is_saved = False, True
        if self.writer is None:
            return
        self.writer.save(
            replace(
                self.manifest,
                step=progress.step,
                loss=progress.loss,
                data_position=merge_positions(self.ranks.all_gather(progress.position)[:: self.ranks.sharers]),
                evaluation_due=progress.evaluation_due,
                loss_scale=self.strategy.state_dict(),
                plateau=self.plateau.state_dict(),
            )
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint whose tensors are loaded; the position in the data stays."""
        manifest, progress = checkpoint.manifest, self.progress
        self.strategy.load_state_dict(manifest.loss_scale)
        self.plateau.load_state_dict(manifest.plateau)
        progress.step, progress.loss = manifest.step, manifest.loss
        progress.evaluation_due = manifest.evaluation_due and bool(self.data.validation)
        progress.is_saved = self.writer is not None and checkpoint.storage == self.writer.storage

    def roll_back(self, samples: Prefetcher, *, repeated: bool) -> Checkpoint:
        """Return to a checkpoint, and pass over the samples read since. A repeated one goes before the last one's checkpoint.

        Raises:
            KfjobError: there is no valid checkpoint.
        """
        progress = self.progress
        before = progress.rolled_back_to if repeated else None
        checkpoint = roll_back(self.writer, self.model, self.state, self.ranks, before=before)
        self.restore(checkpoint)
        progress.committed, progress.rolled_back_to = checkpoint, checkpoint.manifest.step
        progress.pass_over(samples.position())
        return checkpoint

    def count_steps(self, data: SampleStream | Prefetcher) -> int:
        """Return the number of the last step; `data` is at the position of the progress."""
        return compute_total_steps(self.spec, data, self.global_batch, self.progress.step)


def compute_total_steps(spec: TrainSpec, data: SampleStream | Prefetcher, global_batch: int, step: int) -> int:
    """Return the number of the last step: `max_steps` or the end of `epochs`, whichever is first.

    Epochs count samples: with another global batch, or after a roll-back, the run still ends where the data ends.

    Raises:
        KfjobError: there is not enough data for one step.
    """
    if spec.epochs is None or data.samples_per_epoch is None:
        return spec.max_steps or 0
    steps = step + max(0, spec.epochs * data.samples_per_epoch - data.samples_read) // global_batch
    if steps == 0:
        title = f"{plural(spec.epochs, 'epoch')} of data are smaller than one global batch of {plural(global_batch, 'sample')}"
        raise KfjobError(title, location="epochs")
    return min(steps, spec.max_steps or steps)
