"""Frozen weights in 4 bits (`lora.quantize: nf4`): which layers have them, what they weigh, and the rules of torchao. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kfjob.trainspec.lora import LinearLayer, LoraSpec, list_linear_layers
from kfjob.trainspec.models import ModelShape
from kfjob.validation.models import FieldProblem

if TYPE_CHECKING:
    from kfjob.trainspec.train_spec import TrainSpec

BLOCK = 64
"""Weights that share a scale, as in the paper (QLoRA, Dettmers et al. 2023, section 3)."""
SCALES = 256
"""Scales that share a scale of their own, as in the paper."""


def can_quantize(inputs: int, outputs: int) -> bool:
    """Return whether a linear layer of these widths can be quantised: torchao 0.18 has no incomplete blocks."""
    return inputs * outputs % (BLOCK * SCALES) == 0


def can_shard(outputs: int, inputs: int, ranks: int) -> bool:
    """Return whether a quantised weight can be divided among ranks: by rows, and by whole blocks of scales.

    One rank is refused too, because torchao 0.18 fails when FSDP2 gathers from one rank.
    """
    return ranks > 1 and outputs % ranks == 0 and inputs * outputs % (BLOCK * SCALES * ranks) == 0


def list_quantized(shape: ModelShape, lora: LoraSpec | None) -> list[LinearLayer]:
    """Return the quantised layers of one decoder layer."""
    if lora is None or lora.quantize is None:
        return []
    return [layer for layer in list_linear_layers(shape) if can_quantize(layer.inputs, layer.outputs)]


def count_bytes(layer: LinearLayer, width: int) -> int:
    """Return the bytes of a quantised weight: 4 bits a number, a byte a block, and `width` bytes for each block of scales."""
    weights = layer.inputs * layer.outputs
    return weights // 2 + weights // BLOCK + width * (weights // (BLOCK * SCALES))


def count_temporary_bytes(layers: Iterable[LinearLayer], width: int) -> int:
    """Return the bytes with which torchao writes out the largest of these weights (torchao 0.18 get_original_weight).

    Each index into the table of values is an int64, and there are three copies of the values.
    """
    return max((layer.inputs * layer.outputs for layer in layers), default=0) * (8 + 3 * width)


def find_nf4_problems(spec: TrainSpec, shape: ModelShape | None) -> Iterator[FieldProblem]:
    """Yield every violation of the rules for a spec with a quantised base; `shape` as in `train_rules`."""
    if spec.lora is None or spec.lora.quantize is None:
        return
    if spec.strategy in ("deepspeed", "dp"):
        title = f"`strategy: {spec.strategy}` does not support `lora.quantize`"
        hint = "use `strategy: fsdp`, `ddp` or `none`, or remove `lora.quantize`"
        yield FieldProblem(field="lora.quantize", title=title, hint=hint)
    for field in ("cpu_offload", "activation_offload"):
        if getattr(spec, field):
            title = f"`{field}` does not support `lora.quantize`"
            hint = "use `activation_checkpointing`" if field == "activation_offload" else "remove one of them"
            yield FieldProblem(field=field, title=title, hint=hint)
    if shape and not list_quantized(shape, spec.lora):
        title = f"no linear layer of the {shape.architecture} model can be quantised"
        cause = f"the number of weights in a quantised layer is a multiple of {BLOCK * SCALES}"
        yield FieldProblem(field="lora.quantize", title=title, detail=cause, hint="remove `lora.quantize`")
