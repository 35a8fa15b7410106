"""What the trainer is told: one definition, read from the `train:` section of a job spec and from the trainer's command line
(`kfjob.spec.arguments`).
"""

from __future__ import annotations

import difflib
from typing import Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kfjob.spec.models import PRESETS, ModelShape

Strategy = Literal["fsdp", "ddp", "none"]
Sharding = Literal["full", "shard_grad_op", "hybrid"]
Precision = Literal["fp32", "bf16"]
Schedule = Literal["cosine", "linear", "constant"]


class TrainSpec(BaseModel):
    """Every argument of the trainer. Steps are optimiser steps; batch sizes count samples of `sequence_length` tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    model: str | ModelShape = Field(
        description="a preset's name, a folder with a Hugging Face config.json (and weights, which are loaded), or a shape"
    )
    vocab_size: PositiveInt | None = Field(default=None, description="rows of the embedding, where it is not the preset's own")

    data: str = Field(description="a .jsonl or .txt file, a folder with train.* and validation.*, or a tokenised folder")
    validation: str | None = Field(default=None, description="file to evaluate on, where `data` is a file")
    tokenizer: str | None = Field(default=None, description="folder with tokenizer.json; `data`/tokenizer if there is one")
    text_field: str = Field(default="text", description="the field of a .jsonl line that holds the text")
    sequence_length: PositiveInt = Field(default=1024, description="tokens in a sample")
    lanes: PositiveInt = Field(
        default=64, description="parts that streamed text is read in; a multiple of every world size the run may have"
    )
    shuffle_window: PositiveInt = Field(default=256, description="documents of a lane shuffled together; 1 keeps the order")

    strategy: Strategy = Field(default="fsdp", description="fsdp shards parameters, ddp copies them, none is a single process")
    sharding: Sharding = Field(
        default="full",
        description="fsdp: full, shard_grad_op (parameters stay whole after forward), hybrid (full in a node)",
    )
    precision: Precision = Field(default="bf16", description="of the arithmetic; parameters and optimiser stay in fp32")
    activation_checkpointing: bool = Field(default=False, description="recompute each layer in the backward pass")

    micro_batch_size: PositiveInt = Field(default=1, description="samples in one forward pass of one rank")
    gradient_accumulation_steps: PositiveInt = Field(default=1, description="forward passes in an optimiser step")
    max_steps: PositiveInt | None = Field(default=None, description="optimiser steps to train for")
    epochs: PositiveInt | None = Field(default=None, description="passes over tokenised data; with max_steps, what ends first")
    max_minutes: PositiveFloat | None = Field(default=None, description="stop with a checkpoint after this time")

    lr: PositiveFloat = Field(default=1e-4, description="peak learning rate")
    min_lr: NonNegativeFloat | None = Field(default=None, description="learning rate at the last step; a tenth of lr if unset")
    schedule: Schedule = Field(default="cosine", description="how the learning rate falls after the warm-up")
    warmup_steps: NonNegativeInt | None = Field(default=None, description="steps of linear warm-up")
    warmup_fraction: NonNegativeFloat | None = Field(default=None, le=1, description="the same as a share of all steps")
    weight_decay: NonNegativeFloat = Field(default=0.1, description="on matrices; norms and biases have none")
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="of AdamW")
    eps: PositiveFloat = Field(default=1e-8, description="of AdamW")
    grad_clip: NonNegativeFloat = Field(default=1.0, description="largest norm of the gradient; 0 does not clip")
    seed: NonNegativeInt = Field(default=12345, description="of weights, data order and dropout")

    checkpoint_dir: str | None = Field(
        default=None, description="folder of the checkpoints, shared by all ranks; none if unset"
    )
    resume: str = Field(default="auto", description="auto (newest complete checkpoint, else afresh), none, or a folder")
    checkpoint_every: NonNegativeInt = Field(
        default=1000, description="steps between checkpoints; 0 writes one at the end only"
    )
    keep_last: NonNegativeInt = Field(default=3, description="complete checkpoints to keep; 0 keeps all")

    log_every: PositiveInt = Field(default=1, description="steps between progress lines")
    eval_every: NonNegativeInt = Field(default=0, description="steps between evaluations; 0 is never")
    eval_batches: PositiveInt = Field(default=10, description="micro-batches in an evaluation, over all ranks together")
    debug: bool = Field(default=False, description="show tracebacks of errors that have a message of their own")

    @field_validator("model")
    @classmethod
    def _known_preset(cls, model: str | ModelShape) -> str | ModelShape:
        if isinstance(model, str) and "/" not in model and model not in PRESETS and not model.startswith("."):
            near = difflib.get_close_matches(model, PRESETS, n=1)
            known = f"did you mean `{near[0]}`" if near else f"the presets are {', '.join(PRESETS)}"
            raise ValueError(f"no preset `{model}` ({known}; a folder's path contains a slash)")
        return model

    @field_validator("min_lr")
    @classmethod
    def _below_peak(cls, min_lr: float | None, info: ValidationInfo) -> float | None:
        lr = info.data.get("lr")
        if min_lr is not None and lr is not None and min_lr > lr:
            raise ValueError(f"min_lr {min_lr:g} is above lr {lr:g}")
        return min_lr

    @field_validator("warmup_fraction")
    @classmethod
    def _one_warmup(cls, fraction: float | None, info: ValidationInfo) -> float | None:
        if fraction is not None and info.data.get("warmup_steps") is not None:
            raise ValueError("give warmup_steps or warmup_fraction, not both")
        return fraction

    @field_validator("betas")
    @classmethod
    def _below_one(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError("both are at least 0 and below 1")
        return betas

    @model_validator(mode="after")
    def _ends_and_fits(self) -> Self:
        if self.max_steps is None and self.epochs is None:
            raise ValueError("give max_steps or epochs: nothing says when the training ends")
        shape = shape_of(self)
        if shape and self.sequence_length > shape.max_position_embeddings:
            raise ValueError(
                f"sequence_length {self.sequence_length} is above the model's {shape.max_position_embeddings} positions"
            )
        return self


def shape_of(spec: TrainSpec) -> ModelShape | None:
    """The model's shape with `vocab_size` applied; None where only a folder's config.json knows it."""
    shape = PRESETS.get(spec.model) if isinstance(spec.model, str) else spec.model
    return shape.model_copy(update={"vocab_size": spec.vocab_size}) if shape and spec.vocab_size else shape


def final_lr(spec: TrainSpec) -> float:
    """The learning rate that the schedule ends at."""
    return spec.lr / 10 if spec.min_lr is None else spec.min_lr


def warmup_steps(spec: TrainSpec, total_steps: int) -> int:
    """Steps of warm-up out of `total_steps`."""
    return spec.warmup_steps or round((spec.warmup_fraction or 0) * total_steps)
