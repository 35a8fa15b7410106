"""TrainSpec: every argument of the trainer, defined once for the `train:` section of a job spec and for the trainer's command
line (`kfjob.trainspec.command_line`).
"""

from pathlib import Path
from typing import Self

from pydantic import ValidationInfo, field_validator, model_validator

from kfjob.base.errors import SpecError
from kfjob.base.text import find_similar
from kfjob.trainspec.model_shapes import PRESETS, ModelShape
from kfjob.trainspec.train_fields import Packing, TrainFields
from kfjob.trainspec.train_rules import find_problems
from kfjob.validation.spec_model import field_error, field_errors

SWITCHES = ("true", "false", "1", "0")
"""Values of another script's `resume`, see `kfjob.trainspec.script_arguments`."""


class TrainSpec(TrainFields):
    """Every argument of the trainer. Steps are optimiser steps; batch sizes count samples of `sequence_length` tokens."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str | ModelShape) -> str | ModelShape:
        if isinstance(model, str) and "/" not in model and model not in PRESETS and not model.startswith("."):
            words = sorted(model.lower().split("-"))  # in another order
            same_words = (name for name in PRESETS if sorted(name.split("-")) == words)
            similar = next(same_words, None) or find_similar(model, PRESETS)
            hint = f"did you mean `{similar}`?" if similar else f"the presets are {', '.join(PRESETS)}"
            if Path(model).is_dir():
                hint = f"did you mean the folder `./{model}`?"
            title = f"no preset `{model}`; the name of a folder or of a model on the hub contains a slash"
            raise field_error("preset", title, hint=hint)
        return model

    @field_validator("resume")
    @classmethod
    def _check_resume(cls, resume: str) -> str:
        if resume.lower() in SWITCHES:
            hint = f"use `auto` or `none`; for a folder of that name, write `./{resume}`"
            raise field_error("resume", f"`resume` cannot be `{resume}`", hint=hint)
        return resume

    @field_validator("min_lr")
    @classmethod
    def _check_min_lr(cls, min_lr: float | None, info: ValidationInfo) -> float | None:
        lr = info.data.get("lr")
        if min_lr is not None and lr is not None and min_lr > lr:
            raise field_error("min_lr", f"`min_lr` {min_lr:g} is above `lr` {lr:g}")
        return min_lr

    @field_validator("warmup_fraction")
    @classmethod
    def _check_warmup(cls, fraction: float | None, info: ValidationInfo) -> float | None:
        if fraction is not None and info.data.get("warmup_steps") is not None:
            raise field_error("warmup", "`warmup_steps` and `warmup_fraction` exclude each other", hint="remove one of them")
        return fraction

    @field_validator("compile", "activation_checkpointing", "micro_batch_size", mode="before")
    @classmethod
    def _open_default(cls, value: object) -> object:
        return None if value == "auto" else value

    @field_validator("wrap", mode="before")
    @classmethod
    def _split_wrap(cls, wrap: object) -> object:
        return tuple(wrap.split(",")) if isinstance(wrap, str) else wrap

    @field_validator("betas")
    @classmethod
    def _check_betas(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise field_error("betas", "each value of `betas` must be at least 0 and below 1")
        return betas

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        try:
            shape = get_shape(self)
        except SpecError as error:
            raise field_error("shape", error.title, path="vocab_size") from None
        if problems := tuple(find_problems(self, shape)):
            raise field_errors(problems)
        return self


def get_shape(spec: TrainSpec) -> ModelShape | None:
    """Return the model's shape with the spec's `vocab_size`; None if it is only in a folder's config.json or on the hub."""
    shape = PRESETS.get(spec.model) if isinstance(spec.model, str) else spec.model
    return shape.model_copy(update={"vocab_size": spec.vocab_size}) if shape and spec.vocab_size else shape


def resolve_packing(spec: TrainSpec) -> Packing:
    """Return the packing, with the default for the data format."""
    return spec.packing or ("documents" if spec.data_format == "chat" else "stream")


def resolve_micro_batch_size(spec: TrainSpec) -> int:
    """Return the samples of a forward pass, with the default for every device without `kfjob.trainspec.defaults`."""
    return spec.micro_batch_size or 1


def resolve_eval_batch_size(spec: TrainSpec) -> int:
    """Return the samples in a batch of an evaluation."""
    return spec.eval_batch_size or resolve_micro_batch_size(spec)


def resolve_final_lr(spec: TrainSpec) -> float:
    """Return the learning rate at the end of the schedule."""
    return spec.lr / 10 if spec.min_lr is None else spec.min_lr


def resolve_warmup_steps(spec: TrainSpec, total_steps: int) -> int:
    """Return the steps of warm-up in a training of `total_steps`."""
    return spec.warmup_steps or round((spec.warmup_fraction or 0) * total_steps)
