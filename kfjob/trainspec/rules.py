"""Rules across several arguments of the trainer, each in one place for the spec, for lint and for the trainer's command line.

Pure: a rule that depends on files, on the hub or on the number of ranks is in `kfjob.lint` or in the trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kfjob.trainspec.float8 import find_float8_problems
from kfjob.trainspec.lora import find_lora_problems
from kfjob.trainspec.models import ModelShape
from kfjob.trainspec.nf4 import find_nf4_problems
from kfjob.validation.models import FieldProblem

if TYPE_CHECKING:
    from kfjob.trainspec.train_spec import TrainSpec

SYNTHETIC = "synthetic"
"""The name of the data that the trainer makes itself."""
TOKENS_HEADER = "tokens.json"
"""The file that makes a folder one of tokenised data."""
_REPOSITORY_NAME = r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?"
"""Valid names of a repository on the hub."""
TEXT_SUFFIXES = (".jsonl", ".txt", ".parquet")
"""The data files that the trainer reads."""
_PASSWORD = re.compile(r"[A-Za-z][\w+.-]*://[^/\s@]*:[^/\s]*@")
"""A URL with a user and a password."""
_OTHER_SUFFIXES = (".json", ".csv", ".tsv", ".arrow", ".gz", ".zst", ".zip", ".bin", ".npy", ".jsonlines", ".ndjson")
"""Data files of other programs; a folder may have any other name."""


def find_problems(spec: TrainSpec, shape: ModelShape | None) -> Iterator[FieldProblem]:
    """Yield every violation; `shape` is the model's shape, or None if only a folder or the hub has it."""
    yield from _find_password_problems(spec)
    yield from _find_data_problems(spec, shape)
    yield from _find_length_problems(spec)
    yield from _find_validation_problems(spec)
    yield from _find_schedule_problems(spec)
    yield from _find_offload_problems(spec)
    yield from _find_deepspeed_problems(spec)
    yield from _find_context_problems(spec, shape)
    yield from find_lora_problems(spec, shape)
    yield from find_nf4_problems(spec, shape)
    yield from find_float8_problems(spec, shape)
    if spec.router_aux_loss_coef and shape and not shape.num_experts:
        title = f"a {shape.architecture} model has no router"
        yield FieldProblem(field="router_aux_loss_coef", title=title, hint="remove `router_aux_loss_coef`")


def can_be_repository(name: str) -> bool:
    """Return whether `name` is valid for a repository on the hub, and does not end like a data file."""
    suffix = PurePosixPath(name).suffix.lower()
    return bool(re.fullmatch(_REPOSITORY_NAME, name)) and suffix not in (*TEXT_SUFFIXES, *_OTHER_SUFFIXES)


def is_text_file(data: str) -> bool:
    """Return whether `data` names one file with text."""
    return PurePosixPath(data).suffix in TEXT_SUFFIXES


def _find_data_problems(spec: TrainSpec, shape: ModelShape | None) -> Iterator[FieldProblem]:
    if spec.data_format == "chat" and spec.packing == "stream":
        hint = "use `documents` or `pad` with `data_format: chat`"
        yield FieldProblem(field="packing", title="`packing: stream` splits conversations", hint=hint)
    if spec.wandb_log_model != "none" and "://" in (spec.checkpoint_dir or "://"):
        hint = "set `checkpoint_dir` to a local folder"
        yield FieldProblem(field="wandb_log_model", title="`wandb_log_model` copies checkpoints from a folder", hint=hint)
    if shape and spec.sequence_length > shape.max_position_embeddings:
        title = f"`sequence_length` {spec.sequence_length} is above the model's {shape.max_position_embeddings} positions"
        hint = f"use at most {shape.max_position_embeddings}, or a model with more positions"
        yield FieldProblem(field="sequence_length", title=title, hint=hint)
    for field in ("data", "validation"):
        suffix = PurePosixPath(str(getattr(spec, field) or "")).suffix
        if suffix in _OTHER_SUFFIXES:
            title = f"the trainer cannot read `{suffix}` files"
            hint = "convert the file to .jsonl, .txt or .parquet"
            yield FieldProblem(field=field, title=title, hint=hint)
    if is_text_file(spec.data) and not spec.tokenizer and shape:
        hint = "set `tokenizer` to a folder with tokenizer.json, or to a model on the hub, such as `gpt2`"
        yield FieldProblem(field="data", title="text needs a tokenizer, and a preset or a shape has none", hint=hint)


def _find_password_problems(spec: TrainSpec) -> Iterator[FieldProblem]:
    for field in type(spec).model_fields:
        if _PASSWORD.match(str(getattr(spec, field))):
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what the storage reads, from a secret"
            yield FieldProblem(field=field, title=f"`{field}` must be a URL without a password", hint=hint)


def _find_length_problems(spec: TrainSpec) -> Iterator[FieldProblem]:
    if spec.max_steps is None and spec.epochs is None:
        yield FieldProblem(field="", title="the training has no end", hint="set `max_steps` or `epochs`")
    is_synthetic = spec.data == SYNTHETIC
    if is_synthetic or is_text_file(spec.data):
        reason = "synthetic data has no end" if is_synthetic else "the number of samples in streamed data is unknown"
        for field in ("epochs", "evals_per_epoch"):
            if getattr(spec, field):
                yield make_epochs_problem(field, reason)


def make_epochs_problem(field: str, reason: str) -> FieldProblem:
    """Return the problem of a field that counts epochs of data without a known length."""
    hint = "use `max_steps` and `eval_every`, or tokenise the data first: kfjob-tokenize"
    return FieldProblem(field=field, title=f"`{field}` needs tokenised data: {reason}", hint=hint)


def _find_validation_problems(spec: TrainSpec) -> Iterator[FieldProblem]:
    field = "eval_every" if spec.eval_every else "evals_per_epoch"
    if getattr(spec, field) and spec.validation is None and is_text_file(spec.data):
        yield FieldProblem(field=field, title=f"`{field}` needs validation data", hint="set `validation` to a file")


def _find_schedule_problems(spec: TrainSpec) -> Iterator[FieldProblem]:
    if spec.schedule == "plateau" and not (spec.eval_every or spec.evals_per_epoch):
        yield FieldProblem(field="schedule", title="`schedule: plateau` needs evaluations", hint="set `eval_every`")
    if spec.schedule == "exponential" and spec.min_lr == 0:
        title = "`schedule: exponential` never reaches 0"
        yield FieldProblem(field="min_lr", title=title, hint="set `min_lr` above 0")


def _find_offload_problems(spec: TrainSpec) -> Iterator[FieldProblem]:
    is_stage_0 = spec.strategy == "deepspeed" and spec.zero_stage == 0
    if spec.cpu_offload and (spec.strategy not in ("fsdp", "deepspeed") or is_stage_0):
        title = "`cpu_offload` needs strategy fsdp, or deepspeed with zero_stage 1 or higher"
        yield FieldProblem(field="cpu_offload", title=title)
    if spec.disk_offload and ((spec.strategy, spec.zero_stage) != ("deepspeed", 3) or spec.cpu_offload):
        title = "`disk_offload` needs strategy deepspeed with zero_stage 3, and excludes `cpu_offload`"
        yield FieldProblem(field="disk_offload", title=title)


def _find_context_problems(spec: TrainSpec, shape: ModelShape | None) -> Iterator[FieldProblem]:
    sharers = spec.context_parallel
    if sharers == 1:
        return
    if spec.strategy in ("none", "dp"):
        title = f"`context_parallel` needs several ranks, and strategy `{spec.strategy}` has one"
        yield FieldProblem(field="context_parallel", title=title, hint="use `fsdp` or `ddp`")
    if spec.compile:
        cause = "the exchange of keys and values would divide each compiled layer"
        yield FieldProblem(field="compile", title="`compile` does not support `context_parallel`", detail=cause)
    if spec.sequence_length % (2 * sharers):
        title = f"`sequence_length` {spec.sequence_length} cannot be cut into {2 * sharers} chunks"
        hint = f"use a multiple of {2 * sharers}: two chunks for each of {sharers} ranks"
        yield FieldProblem(field="sequence_length", title=title, hint=hint)
    if shape and shape.sliding_window and shape.sliding_window < spec.sequence_length:
        title = f"`context_parallel` does not support the model's window of {shape.sliding_window} tokens"
        yield FieldProblem(field="context_parallel", title=title)


def _find_deepspeed_problems(spec: TrainSpec) -> Iterator[FieldProblem]:
    if spec.strategy != "deepspeed":
        return
    for field in ("on_nan", "on_spike"):
        if getattr(spec, field) in ("skip", "roll_back"):
            hint = "`on_nan` and `on_spike` may stop the training"
            yield FieldProblem(field=field, title="strategy deepspeed cannot skip steps or roll back", hint=hint)
    if spec.precision == "bf16-true":
        hint = "use `bf16`, or `strategy: fsdp`"
        yield FieldProblem(field="precision", title="DeepSpeed keeps fp32 copies of bf16 parameters", hint=hint)
    if spec.precision == "fp16" and spec.zero_stage == 0:
        detail = "its losses differ from those of all other stages by 0.1 % within four steps"
        title = "DeepSpeed's stage 0 is not supported in fp16"
        yield FieldProblem(field="zero_stage", title=title, detail=detail, hint="use stage 1")
