"""Frozen weights in 4 bits (`lora.quantize: nf4`, QLoRA): torchao's NF4, with its scales quantised too.

Quantised are the linear layers of the decoder; embedding, head, router and experts keep the type of the arithmetic. A layer's
product first writes its weight in that type, in the forward and in the backward pass. Only this module uses torchao's NF4, and
imports it only on use; the module's path is that of torchao 0.18.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from kfjob.base.errors import KfjobError
from kfjob.trainer.layers import find_linear_layers
from kfjob.trainspec.linear_layers import NF4_BLOCK, NF4_SCALES, can_quantize, can_shard_nf4
from kfjob.trainspec.packages import Package
from kfjob.trainspec.train_spec import TrainSpec


def quantizes(spec: TrainSpec) -> bool:
    """Return whether the spec wants a quantised base."""
    return spec.lora is not None and spec.lora.quantize is not None


def quantize_base(model: Any, unit: nn.Module, spec: TrainSpec) -> None:
    """Quantise the linear layers of the base in a unit in place, if the spec wants that; the unit has its weights.

    The weights depend neither on the strategy nor on the number of ranks, because whole ones are quantised.
    """
    if not quantizes(spec):
        return
    inside = set(unit.modules())
    for _, layer in find_linear_layers(model):
        weight = layer.weight
        if layer in inside and can_quantize(layer.in_features, layer.out_features) and not is_quantized(weight):
            layer.weight = nn.Parameter(_quantize(weight.detach()), requires_grad=False)


def check_quantizable(model: Any, spec: TrainSpec) -> None:
    """Check that the base has layers to quantise, if the spec wants that.

    Raises:
        KfjobError: it has none, or torchao is not installed.
    """
    if not quantizes(spec):
        return
    _import_nf4()
    if not any(can_quantize(layer.in_features, layer.out_features) for _, layer in find_linear_layers(model)):
        title = f"{type(model).__name__} has no layer for `lora.quantize`"
        cause = f"the number of weights of a quantised layer is a multiple of {NF4_BLOCK * NF4_SCALES}"
        raise KfjobError(title, location="lora.quantize", cause=cause, hint="remove `lora.quantize`")


@torch.no_grad()
def round_base(model: Any, spec: TrainSpec, dtype: torch.dtype) -> None:
    """Give the linear layers of a whole fp32 base in place the values that they have in a run that computes in `dtype`."""
    if not quantizes(spec):
        return
    for _, layer in find_linear_layers(model):
        if can_quantize(layer.in_features, layer.out_features):
            layer.weight.copy_(_quantize(layer.weight.to(dtype)).to(torch.float32))


def is_quantized(parameter: torch.Tensor) -> bool:
    """Return whether a parameter is quantised; it may be sharded."""
    local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    return type(local.data).__name__ == "NF4Tensor"


def list_whole(model: nn.Module, ranks: int) -> set[nn.Parameter]:
    """Return the quantised parameters that cannot be divided among these ranks, so that each holds them whole."""
    candidates = [
        parameter for parameter in model.parameters() if not isinstance(parameter, DTensor) and is_quantized(parameter)
    ]
    return {weight for weight in candidates if not can_shard_nf4(weight.shape[0], weight.shape[1], ranks)}


def _quantize(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight in NF4, which computes in its type; in fp16 the inverse scales of small weights would overflow."""
    quantized: torch.Tensor = _import_nf4().to_nf4(
        weight.to(torch.bfloat16) if weight.dtype is torch.float16 else weight, NF4_BLOCK, NF4_SCALES
    )
    return quantized


def _import_nf4() -> Any:
    try:
        from torchao.quantization.quantize_.workflows.nf4 import nf4_tensor
    except ImportError as error:
        raise Package("torchao", "lora.quantize", "lora.quantize: nf4").make_missing() from error
    return nf4_tensor
