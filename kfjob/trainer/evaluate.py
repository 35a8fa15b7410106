"""The loss on fixed validation samples, the same on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from kfjob.trainer.data.batches import count_targets, to_batch
from kfjob.trainer.data.packing import IGNORE, Sample
from kfjob.trainer.data.prefetch import Prefetcher
from kfjob.trainer.data.stream import SampleStream
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.loss import token_loss
from kfjob.trainer.stop_request import StopRequest
from kfjob.trainspec.train_spec import TrainSpec


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    loss: float
    """The mean over all targets."""
    tokens: int
    """The number of targets."""


def is_evaluation_due(step: int, spec: TrainSpec, global_batch: int, data: SampleStream | Prefetcher) -> bool:
    """Return whether to evaluate after step `step`: every `eval_every` steps, and `evals_per_epoch` times per epoch."""
    if spec.eval_every and step % spec.eval_every == 0:
        return True
    if not spec.evals_per_epoch or data.samples_per_epoch is None:
        return False
    samples = (data.samples_read - global_batch, data.samples_read)
    before, after = (number * spec.evals_per_epoch // data.samples_per_epoch for number in samples)
    return after > before


@torch.no_grad()
def evaluate(
    model: nn.Module,
    samples: Sequence[Sample],
    *,
    batch_size: int,
    ranks: Ranks,
    stop: StopRequest | None = None,
) -> Evaluation | None:
    """Return the mean loss over `samples`, or None after a stop; the ranks evaluate whole batches in turn.

    The batches are the same on any number of ranks, and their losses are summed exactly. So the result is bit-exact if the
    weights are. A rank without a batch computes one without targets: sharded models need every rank in every forward pass.
    """
    model.eval()
    losses, tokens = [], 0
    for begin in range(0, len(samples), batch_size * ranks.data_world_size):
        if stop and stop.ask(ranks):
            model.train()
            return None
        own_begin = begin + batch_size * ranks.data_rank
        batch = np.stack(samples[own_begin : own_begin + batch_size] or samples[:1])
        if own_begin >= len(samples):
            batch[:, 1] = IGNORE
        losses.append(float(token_loss(model, *to_batch(batch, ranks.device))))
        tokens += count_targets(batch)
    model.train()
    parts = ranks.all_gather((losses, tokens))
    total = sum(count for _, count in parts) // ranks.sharers
    return Evaluation(math.fsum(loss for part, _ in parts for loss in part) / total, total)
