"""The loss on a fixed slice of the validation data, the same for every number of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from kfjob.spec.train import TrainSpec
from kfjob.trainer.data.packing import IGNORE, Sample
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.loss import batch_of, counted, token_loss
from kfjob.trainer.strategies import Strategy


def evaluation_due(step: int, spec: TrainSpec, global_batch: int, samples_per_epoch: int | None) -> bool:
    """Whether an evaluation comes after step `step`: every `eval_every` steps, and where a share of an epoch is completed."""
    if spec.eval_every and step % spec.eval_every == 0:
        return True
    if not spec.evals_per_epoch or samples_per_epoch is None:
        return False
    before, now = ((at * global_batch * spec.evals_per_epoch) // samples_per_epoch for at in (step - 1, step))
    return now > before


@torch.no_grad()
def evaluate(
    model: nn.Module, samples: Sequence[Sample], *, batch_size: int, ranks: Ranks, strategy: Strategy
) -> tuple[float, int]:
    """(mean loss, tokens) over `samples`: whole batches are dealt to the ranks in turn.

    The batches are the same for every number of ranks, and their losses are added up exactly, so the answer is too, to the bit
    where the weights are. A rank that has none left computes one that counts for nothing: sharded models need every rank in
    every forward pass.
    """
    model.eval()
    losses, tokens = [], 0
    for begin in range(0, len(samples), batch_size * ranks.world_size):
        own = begin + batch_size * ranks.rank
        batch = np.stack(samples[own : own + batch_size] or samples[:1])
        if own >= len(samples):
            batch[:, 1] = IGNORE
        with strategy.autocast():
            losses.append(float(token_loss(model, *batch_of(batch, ranks.device))))
        tokens += counted(batch)
    model.train()
    parts = ranks.gather((losses, tokens))
    total = sum(count for _, count in parts)
    return math.fsum(loss for part, _ in parts for loss in part) / total, total
