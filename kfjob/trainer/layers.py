"""What a decoder layer keeps of its forward pass, and how it is compiled: done to each layer before it is sharded.

Each step wraps the layer's `forward`. The strategy's hooks stand around the module, so a sharded layer is gathered once for
all that happens inside, and what is compiled has no communication in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from kfjob.spec.train import TrainSpec


def prepare_layers(layers: Sequence[nn.Module], spec: TrainSpec) -> None:
    """Apply to `layers` what the spec says: recomputation, then compilation, then offloading of what is still kept."""
    for number, layer in enumerate(layers):
        if spec.activation_checkpointing and number % spec.recompute_every == 0:
            layer.forward = partial(_recomputed, layer.forward, cheap=spec.recompute == "cheap")
        if spec.compile:
            layer.forward = torch.compile(layer.forward)
        if spec.activation_offload:
            layer.forward = offloaded(layer, layer.forward)


def _recomputed(forward: Callable[..., Any], *args: Any, cheap: bool, **kwargs: Any) -> Any:
    """Keep the input only, or with `cheap` also the products of matrices, and compute the rest again in the backward pass."""
    choice = partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, _DEAR)
    context: dict[str, Any] = {"context_fn": choice} if cheap else {}
    return torch.utils.checkpoint.checkpoint(forward, *args, use_reentrant=False, **context, **kwargs)


_aten = torch.ops.aten
_DEAR = [
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001 -- the operators have no other names
    _aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001
]
"""Operators that cost much to compute again: products of matrices, and attention in all its forms."""


def offloaded(layer: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` with what it keeps for the backward pass on the host. Parameters stay: the strategy knows where they are."""
    pinned = torch.cuda.is_available()
    copies: dict[object, tuple[Tensor, Tensor]] = {}

    def pack(tensor: Tensor) -> tuple[torch.device, Tensor]:
        place = tensor.untyped_storage().data_ptr()
        if place in {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}:
            return tensor.device, tensor
        # What several operators need (q, k and v of one normed input) is copied once. The tensor is held as well, or its
        # memory could be given to another one meanwhile.
        key = (place, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor._version)  # noqa: SLF001
        if key not in copies:
            host = torch.empty_like(tensor, device="cpu", pin_memory=pinned)
            copies[key] = tensor, host.copy_(tensor)
        return tensor.device, copies[key][1]

    def unpack(packed: tuple[torch.device, Tensor]) -> Tensor:
        device, tensor = packed
        return tensor.to(device, non_blocking=pinned)

    @wraps(forward)
    def kept_on_host(*args: Any, **kwargs: Any) -> Any:
        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                return forward(*args, **kwargs)
        finally:
            copies.clear()

    return kept_on_host
