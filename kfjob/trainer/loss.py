"""Next-token loss, summed over tokens; the caller divides it by the tokens of the global batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from kfjob.trainer.attention import has_document_attention
from kfjob.trainer.context import get_context
from kfjob.trainer.data.batches import Documents
from kfjob.trainer.data.packing import IGNORE
from kfjob.trainer.experts import compute_router_loss, count_routed_tokens, get_router_factor
from kfjob.trainer.shapes import unwrap

_LOGIT_SETTINGS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier", "mup_width_multiplier")
"""Settings of models that change logits after the head's matrix product (Gemma 2, Cohere, Granite, Falcon H1 and others)."""


def token_loss(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    documents: Documents | None = None,
) -> Tensor:
    """Return the sum of the targets' cross-entropies, in fp32; in training with the loss of the router, if the model has one.

    A mean would weight tokens differently if micro-batches have different numbers of targets. `documents` keep attention
    inside them: by their boundaries, or by the mask that transformers derives from positions that restart.
    """
    arguments: dict[str, Any] = {"use_cache": False}
    positions = documents.positions if documents else None
    if documents and has_document_attention(model):
        arguments |= {"cu_seq_lens_q": documents.boundaries, "max_length_q": documents.longest}
    inner: Any = unwrap(model)
    counts = count_routed_tokens(targets) if get_router_factor(model) else None
    if context := get_context(model):
        if positions is None:
            positions = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        inputs, targets, positions = map(context.cut, (inputs, targets, positions))
        counts = counts if counts is None else context.cut(counts)
    arguments |= {"input_ids": inputs} | ({} if positions is None else {"position_ids": positions})
    if counts is not None:
        arguments["output_router_logits"] = True
    if isinstance(inner, _LossModel):
        # one value, or one for each GPU of DataParallel
        loss: Tensor = model(targets=targets, counts=counts, **arguments).sum()
        return loss
    output: Any = model(**arguments)
    loss = torch.nn.functional.cross_entropy(
        output.logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum"
    )
    return loss if counts is None else loss + compute_router_loss(inner, output.router_logits, targets, counts)


def chunk_head(model: Any, tokens: int, *, compiled: bool = False) -> None:
    """Make the model return the summed loss if it is called with `targets`, computed in chunks of `tokens` tokens.

    The chunks are inside the head's own forward, so that FSDP2 and DDP see one call. Nothing changes if the head is not a plain
    linear layer, or if the model changes its logits. The classes change, not the instances, so that replicas of DataParallel,
    which share the attributes of the original, use their own weights.
    """
    head = model.get_output_embeddings()
    if tokens and type(head) is nn.Linear and not any(getattr(model.config, name, None) for name in _LOGIT_SETTINGS):
        head.__class__ = _LossHead
        vars(head)["chunk_tokens"], vars(head)["compiled"] = tokens, compiled
        # transformers finds the names of a family's weights in files by the name and the module of the class
        model.__class__ = type(type(model).__name__, (_LossModel, type(model)), {"__module__": type(model).__module__})


class _LossModel:
    """A causal LM that takes `targets`, and then returns the sum of their losses, shaped (1,)."""

    def forward(self, *args: Any, targets: Tensor | None = None, counts: Tensor | None = None, **kwargs: Any) -> Any:
        """Return transformers' output without `targets`; with `counts` (compute_router_loss) the sum has the router's loss."""
        model: Any = self
        parent: Any = super()
        if targets is None:
            return parent.forward(*args, **kwargs)
        head: _LossHead = model.get_output_embeddings()
        head.targets = targets
        try:
            output: Any = parent.forward(*args, **kwargs)
            loss = output.logits.reshape(1).clone()  # FSDP2 warns of views
            return loss if counts is None else loss + compute_router_loss(model, output.router_logits, targets, counts)
        finally:
            head.targets = None


class _LossHead(nn.Linear):
    """A head that returns the summed loss of its `targets` instead of logits, while it has any."""

    chunk_tokens: int
    compiled: bool
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
            loss: Tensor = ChunkedCrossEntropy.apply(hidden, weight, bias, targets, self.chunk_tokens, self.compiled)
        return loss


class ChunkedCrossEntropy(torch.autograd.Function):
    """The sum of cross-entropies of `hidden @ weight.T + bias`, in fp32, without all logits in memory.

    The forward pass also computes the gradient, chunk by chunk, from the same logits. So the head's matrix product runs once.
    The tensors saved for the backward pass have the size of `hidden` and `weight`. The weight's gradient accumulates in fp32.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 -- autograd passes them by position
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        tokens: int,
        compiled: bool = False,  # noqa: FBT001, FBT002
    ) -> Tensor:
        """Return the loss, and save the gradients that autograd needs.

        `compiled` uses one kernel for loss and gradient in 16 bits. It holds logits and gradient in 16 bits instead of fp32
        logits and the gradient, so that half as many tokens more fit into the memory of a chunk.
        """
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        grad_hidden = torch.zeros_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if bias is not None and needs_bias else None
        compiled &= bias is None and needs_hidden and hidden.dtype.itemsize < torch.float32.itemsize
        tokens = tokens * 3 // 2 if compiled else tokens
        for begin in range(0, len(hidden), tokens):
            part = slice(begin, begin + tokens)
            logits = torch.nn.functional.linear(hidden[part], weight, bias)
            if compiled:
                own_loss, gradient = _compile_chunk()(logits, targets[part])
            else:
                own_loss, gradient = _compute_chunk(logits.float(), targets[part])
            loss += own_loss
            del logits
            if not (needs_hidden or needs_weight or needs_bias):
                continue
            if grad_bias is not None:
                grad_bias += gradient.sum(0)
            gradient = gradient.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = gradient @ weight
            if grad_weight is not None:
                grad_weight += gradient.T @ hidden[part]
            del gradient
        ctx.save_for_backward(grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype), grad_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the saved gradients, scaled.

        The scale has one dimension, so that a product with a gradient in 16 bits is computed in fp32, in its memory. Without a
        dimension CUDA would round the scale to 16 bits, an error of up to 0.4 % in every gradient.
        """
        scale = gradients[0].reshape(1)
        hidden, weight, bias = (None if saved is None else saved.mul_(scale) for saved in ctx.saved_tensors)
        return hidden, weight, bias, None, None, None


def _compute_chunk(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of a chunk and the gradient of its fp32 logits, in their memory."""
    logits = logits.sub_(logits.amax(-1, keepdim=True))
    mask = (targets != IGNORE).unsqueeze(-1)
    target_ids = targets.clamp(min=0).unsqueeze(-1)
    target_logits = logits.gather(-1, target_ids)
    total = logits.exp_().sum(-1, keepdim=True)
    loss = ((total.log() - target_logits) * mask).sum()
    gradient = logits.mul_(mask / total)
    gradient.scatter_(-1, target_ids, gradient.gather(-1, target_ids) - mask.float())
    return loss, gradient


def _compute_fused_chunk(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return what `_compute_chunk` returns, in a form that the compiler turns into one kernel without fp32 copies."""
    mask = (targets != IGNORE).unsqueeze(-1)
    target_ids = targets.clamp(min=0).unsqueeze(-1)
    log_probabilities = torch.log_softmax(logits.float(), -1)
    loss = -(log_probabilities.gather(-1, target_ids) * mask).sum()
    is_target = torch.arange(logits.shape[-1], device=logits.device) == target_ids
    return loss, ((log_probabilities.exp() - is_target.float()) * mask).to(logits.dtype)


@cache
def _compile_chunk() -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return torch.compile(_compute_fused_chunk)
