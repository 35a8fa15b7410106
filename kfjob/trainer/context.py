"""Context parallel: the ranks of a group share each sample, and each computes a part of its tokens.

A sample is cut into 2 N chunks, and rank r of N has chunks r and 2 N - 1 - r. So every rank has the same number of pairs of a
token and an earlier one, which is the work of causal attention. In every layer the ranks exchange keys and values, and each
attends from its own tokens to those of the whole sample. That is exact, with documents too, and needs no kernel of its own.
torch's `context_parallel` (2.15) knows neither documents nor the attention of a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kfjob.trainer.shapes import unwrap

_ATTRIBUTE = "context_group"


@dataclass(frozen=True, kw_only=True)
class Context:
    """The ranks that share samples with this one."""

    size: int
    index: int
    """This rank's number in the group."""
    group: Any
    """torch's process group."""

    def cut(self, values: Tensor) -> Tensor:
        """Return this rank's part of values whose last dimension is that of the tokens."""
        chunks = values.chunk(2 * self.size, -1)
        return torch.cat([chunks[self.index], chunks[-1 - self.index]], -1)

    def list_chunks(self, length: int) -> tuple[slice, slice]:
        """Return the places of this rank's two chunks in a sample of `length` tokens."""
        chunk = length // (2 * self.size)
        begins = (self.index * chunk, (2 * self.size - 1 - self.index) * chunk)
        return slice(begins[0], begins[0] + chunk), slice(begins[1], begins[1] + chunk)

    def gather(self, part: Tensor) -> Tensor:
        """Return the values of all tokens from those of this rank, shaped (samples, tokens, …); gradients flow back."""
        gathered: Tensor = _Gather.apply(part, self)
        return gathered

    def sum(self, part: Tensor) -> Tensor:
        """Return the sum over the ranks of the group; gradients flow back."""
        total: Tensor = _Sum.apply(part, self)
        return total


def set_context(model: Any, context: Context | None) -> None:
    """Make the model compute this rank's part of each sample."""
    vars(model)[_ATTRIBUTE] = context


def get_context(model: nn.Module) -> Context | None:
    """Return the context of a model, wrapped or not."""
    context: Context | None = vars(unwrap(model)).get(_ATTRIBUTE)
    return context


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, context: Context) -> Tensor:
        ctx.context = context
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(context.size)]
        dist.all_gather(parts, part.contiguous(), group=context.group)
        halves = [part.chunk(2, 1) for part in parts]
        return torch.cat([*(first for first, _ in halves), *(second for _, second in reversed(halves))], 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        context: Context = ctx.context
        chunks = gradients[0].chunk(2 * context.size, 1)
        # summed in fp32, as gradients of parameters are
        parts = [torch.cat([chunks[rank], chunks[-1 - rank]], 1).float() for rank in range(context.size)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts, group=context.group)
        return own.to(gradients[0].dtype), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, context: Context) -> Tensor:
        ctx.context = context
        total = part.clone()
        dist.all_reduce(total, group=context.group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].clone()
        dist.all_reduce(total, group=ctx.context.group)
        return total, None
