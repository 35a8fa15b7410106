"""Matrix products in fp8 (`precision: fp8`): the rules of the hardware and of torchao, and what they change in memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfjob.trainspec.lora import list_linear_layers
from kfjob.trainspec.models import ModelShape
from kfjob.validation.models import FieldProblem

if TYPE_CHECKING:
    from kfjob.trainspec.train_spec import TrainSpec

LOWEST_CAPABILITY = (8, 9)
"""CUDA compute capability of the first GPUs with fp8 (Ada: L4, L40S; then Hopper)."""
_MULTIPLE = 16
"""Every width of a product in fp8 is a multiple of this number (torch 2.15 `_scaled_mm`; torchao 0.18 float8/README.md)."""


def can_convert(inputs: int, outputs: int) -> bool:
    """Return whether a linear layer of these widths can compute in fp8."""
    return inputs % _MULTIPLE == 0 and outputs % _MULTIPLE == 0


def count_converted(shape: ModelShape) -> int:
    """Return the number of weights of one decoder layer that compute in fp8; biases do not."""
    return sum(layer.inputs * layer.outputs for layer in list_linear_layers(shape) if can_convert(layer.inputs, layer.outputs))


def find_float8_problems(spec: TrainSpec, shape: ModelShape | None) -> Iterator[FieldProblem]:
    """Yield every violation of the rules for a spec with fp8; `shape` as in `train_rules`."""
    if spec.precision != "fp8":
        if spec.fp8_recipe != "tensorwise":
            title = f"`fp8_recipe` has no effect with `precision: {spec.precision}`"
            yield FieldProblem(field="fp8_recipe", title=title, hint="set `precision: fp8`, or remove `fp8_recipe`")
        if spec.fp8_emulate:
            title = f"`fp8_emulate` has no effect with `precision: {spec.precision}`"
            yield FieldProblem(field="fp8_emulate", title=title, hint="set `precision: fp8`, or remove `fp8_emulate`")
        return
    if spec.strategy == "deepspeed":
        title, hint = "DeepSpeed does not support `precision: fp8`", "set `precision: bf16`, or `strategy: fsdp`"
        yield FieldProblem(field="precision", title=title, hint=hint)
    if spec.lora:
        cause = "torchao computes the gradients of frozen weights too, which takes back what fp8 saves"
        title = "`lora` does not support `precision: fp8`"
        yield FieldProblem(field="precision", title=title, detail=cause, hint="use `precision: bf16`")
    if spec.activation_offload:
        title = "`activation_offload` does not support `precision: fp8`"
        yield FieldProblem(field="activation_offload", title=title, hint="use `activation_checkpointing`")
    tokens = (spec.micro_batch_size or 1) * spec.sequence_length // spec.context_parallel
    if tokens % _MULTIPLE:
        title = f"`precision: fp8` needs a multiple of {_MULTIPLE} tokens on each rank, and a micro-batch has {tokens}"
        hint = "change `sequence_length` or `micro_batch_size`"
        yield FieldProblem(field="sequence_length", title=title, hint=hint)
    if shape and not count_converted(shape):
        title = f"no linear layer of the {shape.architecture} model has widths that are multiples of {_MULTIPLE}, as fp8 needs"
        yield FieldProblem(field="precision", title=title, hint="use `precision: bf16`")
