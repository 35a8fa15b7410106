"""The loss on a fixed slice of the validation data, the same for every number of ranks."""

from __future__ import annotations

import torch
from torch import nn

from kfjob.trainer.data.stream import Sample
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.loss import IGNORE, counted, inputs_and_targets, token_loss
from kfjob.trainer.strategies import Strategy


@torch.no_grad()
def evaluate(
    model: nn.Module, samples: list[Sample], *, batch_size: int, ranks: Ranks, strategy: Strategy
) -> tuple[float, int]:
    """(mean loss, tokens) over `samples`, dealt to the ranks in turn.

    A rank that has none left computes one that counts for nothing: sharded models need every rank in every forward pass.
    """
    model.eval()
    loss, tokens = 0.0, 0
    for begin in range(0, len(samples), batch_size * ranks.world_size):
        mine = samples[begin + ranks.rank : begin + batch_size * ranks.world_size : ranks.world_size]
        batch = torch.stack([torch.from_numpy(sample) for sample in mine or samples[:1]]).to(ranks.device)
        inputs, targets = inputs_and_targets(batch)
        if not mine:
            targets = torch.full_like(targets, IGNORE)
        with strategy.autocast():
            loss += float(token_loss(model, inputs, targets))
        tokens += counted(targets)
    model.train()
    total_loss, total_tokens = ranks.total([loss, tokens])
    return total_loss / total_tokens, int(total_tokens)
