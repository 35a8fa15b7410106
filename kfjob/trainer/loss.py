"""Next-token loss, summed over tokens: the caller divides by the tokens of the whole global batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

IGNORE = -100
"""A target that counts for nothing."""


def inputs_and_targets(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Split samples (batch, length + 1) into what the model reads and what it must say, each (batch, length)."""
    return samples[:, :-1].contiguous(), samples[:, 1:].contiguous()


def counted(targets: Tensor) -> int:
    """How many targets count."""
    return int((targets != IGNORE).sum())


def token_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The sum of the targets' cross-entropies, in fp32.

    A mean over a micro-batch would weigh tokens differently wherever micro-batches have different numbers of them.
    """
    logits: Tensor = model(input_ids=inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum"
    )
