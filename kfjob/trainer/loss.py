"""Next-token loss, summed over tokens: the caller divides by the tokens of the whole global batch."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kfjob.trainer.data.packing import IGNORE

_SCALES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier", "mup_width_multiplier")
"""Settings of models that do more to logits than the head's matrix product (Gemma 2, Cohere, Granite, Falcon H1 and others)."""


class Batch(NamedTuple):
    """Samples on the device, each part shaped (samples, sequence length)."""

    inputs: Tensor
    targets: Tensor
    positions: Tensor | None = None
    """Where each token stands in its document, where there are several in a sample."""


def batch_of(samples: npt.NDArray[np.int64], device: torch.device) -> Batch:
    """Move samples, shaped (samples, rows, length) as data/packing.py makes them, to the device."""
    return Batch(*torch.from_numpy(samples).to(device).unbind(1))


def counted(targets: Tensor) -> int:
    """How many targets count."""
    return int((targets != IGNORE).sum())


def token_loss(model: nn.Module, inputs: Tensor, targets: Tensor, positions: Tensor | None = None) -> Tensor:
    """The sum of the targets' cross-entropies, in fp32.

    A mean over a micro-batch would weigh tokens differently wherever micro-batches have different numbers of them. With
    `positions` attention stays inside documents: transformers makes its masks of them.
    """
    known = {} if positions is None else {"position_ids": positions}
    inner: Any = getattr(model, "module", model)
    head = inner.get_output_embeddings()
    if isinstance(getattr(head, "forward", None), partial) and head.forward.func is _head_loss:
        head.forward.keywords["targets"] = targets
        loss: Tensor = model(input_ids=inputs, use_cache=False, **known).logits
        head.forward.keywords["targets"] = None
        return loss
    logits: Tensor = model(input_ids=inputs, use_cache=False, **known).logits
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum"
    )


def chunk_head(model: Any, tokens: int) -> None:
    """Have the model's head return the summed loss in place of logits, of which those of `tokens` tokens stand at once.

    It is done inside the head's own forward, so that whatever stands around it (FSDP2's gathering, DDP's bookkeeping) sees one
    call. Nothing is done where the head is no plain linear layer, or the model does more to its logits.
    """
    head = model.get_output_embeddings()
    if tokens and type(head) is nn.Linear and not any(getattr(model.config, name, None) for name in _SCALES):
        vars(head)["forward"] = partial(_head_loss, head, tokens=tokens, targets=None)


def _head_loss(head: nn.Linear, hidden: Tensor, *, tokens: int, targets: Tensor | None) -> Tensor:
    if targets is None:  # the model is called for its logits
        return torch.nn.functional.linear(hidden, head.weight, head.bias)
    wanted = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else hidden.dtype
    weight, bias = head.weight.to(wanted), None if head.bias is None else head.bias.to(wanted)
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = ChunkedCrossEntropy.apply(hidden.to(wanted).flatten(0, 1), weight, bias, targets.flatten(), tokens)
    return loss


class ChunkedCrossEntropy(torch.autograd.Function):
    """The sum of cross-entropies of `hidden @ weight.T + bias`, in fp32, without all logits at once.

    The gradient is worked out in the forward pass, chunk by chunk, while a chunk's logits are there: so the head's matrix
    product is not done twice, and what is kept for the backward pass has the size of `hidden` and `weight`. The
    weight's is added up in fp32.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 -- autograd hands them on by position
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, tokens: int
    ) -> Tensor:
        """Loss, and the gradients that are asked for."""
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        grad_hidden = torch.zeros_like(hidden) if wants_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if wants_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if bias is not None and wants_bias else None
        for begin in range(0, len(hidden), tokens):
            part = slice(begin, begin + tokens)
            logits = torch.nn.functional.linear(hidden[part], weight, bias).float()
            logits = logits.sub_(logits.amax(-1, keepdim=True))
            counts = (targets[part] != IGNORE).unsqueeze(-1)
            chosen = targets[part].clamp(min=0).unsqueeze(-1)
            said = logits.gather(-1, chosen)
            total = logits.exp_().sum(-1, keepdim=True)
            loss += ((total.log() - said) * counts).sum()
            if not (wants_hidden or wants_weight or wants_bias):
                continue
            gradient = logits.mul_(counts / total)
            gradient.scatter_(-1, chosen, gradient.gather(-1, chosen) - counts.float())
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
        """Scale them."""
        scale = gradients[0]
        hidden, weight, bias = (None if saved is None else saved.mul_(scale.to(saved.dtype)) for saved in ctx.saved_tensors)
        return hidden, weight, bias, None, None
