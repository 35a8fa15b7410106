"""Next-token loss, summed over tokens; the caller divides it by the tokens of the global batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kfjob.trainer.data.packing import IGNORE

_LOGIT_SETTINGS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier", "mup_width_multiplier")
"""Settings of models that change logits after the head's matrix product (Gemma 2, Cohere, Granite, Falcon H1 and others)."""


class Batch(NamedTuple):
    """Samples on the device; each part is shaped (samples, sequence length)."""

    inputs: Tensor
    targets: Tensor
    positions: Tensor | None = None
    """The position of each token in its document; None if samples do not pack documents."""


def to_batch(samples: npt.NDArray[np.int64], device: torch.device) -> Batch:
    """Move samples to the device; they are shaped (samples, rows, length), as data/packing.py returns them."""
    return Batch(*torch.from_numpy(samples).to(device).unbind(1))


def count_targets(samples: npt.NDArray[np.int64]) -> int:
    """Return the number of targets with a loss. Counting on the host avoids a wait for the device."""
    return int((samples[:, 1] != IGNORE).sum())


def token_loss(model: nn.Module, inputs: Tensor, targets: Tensor, positions: Tensor | None = None) -> Tensor:
    """Return the sum of the targets' cross-entropies, in fp32.

    A mean would weight tokens differently if micro-batches have different numbers of targets. `positions` keep attention inside
    documents: transformers derives its masks from them.
    """
    arguments: dict[str, Any] = {"input_ids": inputs, "use_cache": False}
    if positions is not None:
        arguments["position_ids"] = positions
    if isinstance(getattr(model, "module", model), _LossModel):
        loss: Tensor = model(targets=targets, **arguments).sum()  # one value, or one for each GPU of DataParallel
        return loss
    logits: Tensor = model(**arguments).logits
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum"
    )


def chunk_head(model: Any, tokens: int) -> None:
    """Make the model return the summed loss if it is called with `targets`, computed in chunks of `tokens` tokens.

    The chunks are inside the head's own forward, so that FSDP2 and DDP see one call. Nothing changes if the head is not a plain
    linear layer, or if the model changes its logits. The classes change, not the instances, so that replicas of DataParallel,
    which share the attributes of the original, use their own weights.
    """
    head = model.get_output_embeddings()
    if tokens and type(head) is nn.Linear and not any(getattr(model.config, name, None) for name in _LOGIT_SETTINGS):
        head.__class__ = _LossHead
        vars(head)["chunk_tokens"] = tokens
        model.__class__ = type(type(model).__name__, (_LossModel, type(model)), {})


class _LossModel:
    """A causal LM that takes `targets`, and then returns the sum of their losses, shaped (1,)."""

    def forward(self, *args: Any, targets: Tensor | None = None, **kwargs: Any) -> Any:
        """Return transformers' output without `targets`."""
        model: Any = self
        parent: Any = super()
        if targets is None:
            return parent.forward(*args, **kwargs)
        head: _LossHead = model.get_output_embeddings()
        head.targets = targets
        try:
            return parent.forward(*args, **kwargs).logits.reshape(1).clone()  # FSDP2 warns of views
        finally:
            head.targets = None


class _LossHead(nn.Linear):
    """A head that returns the summed loss of its `targets` instead of logits, while it has any."""

    chunk_tokens: int
    targets: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 -- torch's name
        """Return logits, or the loss."""
        if self.targets is None:  # the model is called for its logits
            return super().forward(input)
        device = input.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else input.dtype
        weight, bias = self.weight.to(dtype), None if self.bias is None else self.bias.to(dtype)
        hidden, targets = input.to(dtype).flatten(0, 1), self.targets.flatten()
        with torch.autocast(device, enabled=False):
            loss: Tensor = ChunkedCrossEntropy.apply(hidden, weight, bias, targets, self.chunk_tokens)
        return loss


class ChunkedCrossEntropy(torch.autograd.Function):
    """The sum of cross-entropies of `hidden @ weight.T + bias`, in fp32, without all logits in memory.

    The forward pass also computes the gradient, chunk by chunk, from the same logits. So the head's matrix product runs once.
    The tensors saved for the backward pass have the size of `hidden` and `weight`. The weight's gradient accumulates in fp32.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 -- autograd passes them by position
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, tokens: int
    ) -> Tensor:
        """Return the loss, and save the gradients that autograd needs."""
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        grad_hidden = torch.zeros_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if bias is not None and needs_bias else None
        for begin in range(0, len(hidden), tokens):
            part = slice(begin, begin + tokens)
            logits = torch.nn.functional.linear(hidden[part], weight, bias).float()
            logits = logits.sub_(logits.amax(-1, keepdim=True))
            mask = (targets[part] != IGNORE).unsqueeze(-1)
            target_ids = targets[part].clamp(min=0).unsqueeze(-1)
            target_logits = logits.gather(-1, target_ids)
            total = logits.exp_().sum(-1, keepdim=True)
            loss += ((total.log() - target_logits) * mask).sum()
            if not (needs_hidden or needs_weight or needs_bias):
                continue
            gradient = logits.mul_(mask / total)
            gradient.scatter_(-1, target_ids, gradient.gather(-1, target_ids) - mask.float())
            if grad_bias is not None:
                grad_bias += gradient.sum(0)
            gradient = gradient.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = gradient @ weight
            if grad_weight is not None:
                grad_weight += gradient.T @ hidden[part]
            del logits, gradient
        ctx.save_for_backward(grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype), grad_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the saved gradients, scaled."""
        scale = gradients[0]
        hidden, weight, bias = (None if saved is None else saved.mul_(scale.to(saved.dtype)) for saved in ctx.saved_tensors)
        return hidden, weight, bias, None, None
