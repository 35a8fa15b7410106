"""Activation checkpointing, compilation and activation offloading of decoder layers, applied before they are sharded.

Each of them wraps the layer's `forward`. The strategy's hooks are on the module, so a sharded layer is gathered once for
everything inside, and compiled code has no communication in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import Any

import torch
import torch.nn.attention.varlen  # registers its operator
import torch.utils.checkpoint
from torch import Tensor, nn

from kfjob.trainspec.train_spec import TrainSpec

_ROUTERS = frozenset({"gate", "router", "shared_expert_gate"})
"""Names of the layers of transformers that choose experts."""


def find_linear_layers(model: Any) -> Iterator[tuple[str, nn.Linear]]:
    """Yield (name, module) of the linear layers of the decoder without its routers and experts, and without adapters."""
    ends = {id(model.get_input_embeddings()), id(model.get_output_embeddings())}
    for name, module in model.named_modules():
        is_other = id(module) in ends or ".experts." in f".{name}." or name.rpartition(".")[2] in _ROUTERS
        if type(module) is nn.Linear and not is_other and ".lora_" not in name:
            yield name, module


def prepare_layers(layers: Sequence[nn.Module], spec: TrainSpec) -> None:
    """Apply activation checkpointing, then compilation, then offloading of the remaining activations, as the spec requires."""
    for number, layer in enumerate(layers):
        if spec.activation_checkpointing and number % spec.recompute_every == 0:
            layer.forward = partial(_checkpoint_activations, layer.forward, cheap=spec.recompute == "cheap")
        if spec.compile:
            layer.forward = torch.compile(layer.forward)
        if spec.activation_offload:
            layer.forward = offload_activations(layer, layer.forward)


def _checkpoint_activations(forward: Callable[..., Any], *args: Any, cheap: bool, **kwargs: Any) -> Any:
    """Save only the input, with `cheap` also the matrix products, and recompute the rest in the backward pass."""
    policy = partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, _EXPENSIVE_OPERATORS)
    context: dict[str, Any] = {"context_fn": policy} if cheap else {}
    return torch.utils.checkpoint.checkpoint(forward, *args, use_reentrant=False, **context, **kwargs)


_aten = torch.ops.aten
_EXPENSIVE_OPERATORS = [
    torch.ops.torch_attn._varlen_attn.default,  # noqa: SLF001 -- packed documents
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten._scaled_mm.default,  # noqa: SLF001 -- fp8
    _aten._grouped_mm.default,  # noqa: SLF001 -- experts
    _aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001 -- the operators have no other names
    _aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001
]
"""Operators that are expensive to recompute: matrix products, and every kind of attention."""


def offload_activations(layer: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return `forward` with its saved activations on the host. Parameters stay on the device: the strategy manages them."""
    pinned = torch.cuda.is_available()
    copies: dict[object, tuple[Tensor, Tensor]] = {}

    def pack(tensor: Tensor) -> tuple[torch.device, Tensor]:
        address = tensor.untyped_storage().data_ptr()
        if address in {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}:
            return tensor.device, tensor
        # A tensor that several operators save (the normed input of q, k and v) is copied once. `copies` holds the tensor too;
        # otherwise the allocator could reuse its memory for another tensor.
        key = (address, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor._version)  # noqa: SLF001
        if key not in copies:
            host = torch.empty_like(tensor, device="cpu", pin_memory=pinned)
            copies[key] = tensor, host.copy_(tensor)
        return tensor.device, copies[key][1]

    def unpack(packed: tuple[torch.device, Tensor]) -> Tensor:
        device, tensor = packed
        return tensor.to(device, non_blocking=pinned)

    @wraps(forward)
    def forward_with_offload(*args: Any, **kwargs: Any) -> Any:
        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                return forward(*args, **kwargs)
        finally:
            copies.clear()

    return forward_with_offload
