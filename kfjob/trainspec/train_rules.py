"""Rules across several arguments of the trainer, each in one place for the spec, for lint and for the trainer's command line.

Pure: a rule that depends on files, on the hub or on the number of ranks is in `kfjob.lint` or in the trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from kfjob.base.text import join_names
from kfjob.trainspec.linear_layers import (
    FLOAT8_MULTIPLE,
    NF4_BLOCK,
    NF4_SCALES,
    count_float8_weights,
    list_linear_layers,
    list_quantized,
    list_targets,
)
from kfjob.trainspec.model_shapes import ModelShape
from kfjob.trainspec.train_fields import ALL_LINEAR, LoraSpec, TrainFields
from kfjob.validation.spec_model import FieldProblem

SYNTHETIC = "synthetic"
"""The name of the data that the trainer makes itself."""
TOKENS_HEADER = "tokens.json"
"""The file that makes a folder one of tokenised data."""
_REPOSITORY_NAME = r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?"
"""Valid names of a repository on the hub."""
TEXT_SUFFIXES = (".jsonl", ".txt", ".parquet")
"""The data files that the trainer reads."""
_URL_WITH_LOGIN = r"[A-Za-z][\w+.-]*://[^/\s@]*:[^/\s]*@"
"""A URL with a user and a password."""
_OTHER_SUFFIXES = (".json", ".csv", ".tsv", ".arrow", ".gz", ".zst", ".zip", ".bin", ".npy", ".jsonlines", ".ndjson")
"""Data files of other programs; a folder may have any other name."""
_ENDS = ("embed_tokens", "embed_in", "lm_head", "embed_out")
"""The names of embeddings and heads."""


def find_problems(spec: TrainFields, shape: ModelShape | None) -> Iterator[FieldProblem]:
    """Yield every violation; `shape` is the model's shape, or None if only a folder or the hub has it."""
    yield from _find_password_problems(spec)
    yield from _find_data_problems(spec, shape)
    yield from _find_length_problems(spec)
    yield from _find_validation_problems(spec)
    yield from _find_schedule_problems(spec)
    yield from _find_offload_problems(spec)
    yield from _find_logger_problems(spec)
    yield from _find_deepspeed_problems(spec)
    yield from _find_context_problems(spec, shape)
    yield from _find_lora_problems(spec, shape)
    yield from _find_nf4_problems(spec, shape)
    yield from _find_float8_problems(spec, shape)
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


def _find_data_problems(spec: TrainFields, shape: ModelShape | None) -> Iterator[FieldProblem]:
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


def _find_password_problems(spec: TrainFields) -> Iterator[FieldProblem]:
    for field in type(spec).model_fields:
        if re.match(_URL_WITH_LOGIN, str(getattr(spec, field))):
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what the storage reads, from a secret"
            yield FieldProblem(field=field, title=f"`{field}` must be a URL without a password", hint=hint)


def _find_length_problems(spec: TrainFields) -> Iterator[FieldProblem]:
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


def _find_validation_problems(spec: TrainFields) -> Iterator[FieldProblem]:
    field = "eval_every" if spec.eval_every else "evals_per_epoch"
    if getattr(spec, field) and spec.validation is None and is_text_file(spec.data):
        yield FieldProblem(field=field, title=f"`{field}` needs validation data", hint="set `validation` to a file")


def _find_schedule_problems(spec: TrainFields) -> Iterator[FieldProblem]:
    if spec.schedule == "plateau" and not (spec.eval_every or spec.evals_per_epoch):
        yield FieldProblem(field="schedule", title="`schedule: plateau` needs evaluations", hint="set `eval_every`")
    if spec.schedule == "exponential" and spec.min_lr == 0:
        title = "`schedule: exponential` never reaches 0"
        yield FieldProblem(field="min_lr", title=title, hint="set `min_lr` above 0")


def _find_offload_problems(spec: TrainFields) -> Iterator[FieldProblem]:
    is_stage_0 = spec.strategy == "deepspeed" and spec.zero_stage == 0
    if spec.cpu_offload and (spec.strategy not in ("fsdp", "deepspeed") or is_stage_0):
        title = "`cpu_offload` needs strategy fsdp, or deepspeed with zero_stage 1 or higher"
        yield FieldProblem(field="cpu_offload", title=title)
    if spec.disk_offload and ((spec.strategy, spec.zero_stage) != ("deepspeed", 3) or spec.cpu_offload):
        title = "`disk_offload` needs strategy deepspeed with zero_stage 3, and excludes `cpu_offload`"
        yield FieldProblem(field="disk_offload", title=title)


def _find_logger_problems(spec: TrainFields) -> Iterator[FieldProblem]:
    if spec.comms_logger and spec.strategy != "deepspeed":
        title, hint = "`comms_logger` counts DeepSpeed's collectives", "set `strategy: deepspeed`, or remove it"
        yield FieldProblem(field="comms_logger", title=title, hint=hint)


def _find_context_problems(spec: TrainFields, shape: ModelShape | None) -> Iterator[FieldProblem]:
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


def _find_deepspeed_problems(spec: TrainFields) -> Iterator[FieldProblem]:
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


def _find_lora_problems(spec: TrainFields, shape: ModelShape | None) -> Iterator[FieldProblem]:
    """Yield every violation of the rules for a spec with adapters; `shape` as in `find_problems`."""
    lora = spec.lora
    if lora is None:
        return
    if spec.full_state_dict:
        title = "`full_state_dict` writes whole weights, and a checkpoint with `lora` holds adapters only"
        hint = "remove `full_state_dict`; `kfjob-export --merge` writes merged weights"
        yield FieldProblem(field="full_state_dict", title=title, hint=hint)
    ends = [name for name in lora.target_modules if name.rpartition(".")[2] in _ENDS]
    if ends:
        title = f"`lora.target_modules` names `{ends[0]}`, and the trainer adapts only layers of the decoder"
        yield FieldProblem(field="lora.target_modules", title=title, hint=f"remove `{ends[0]}`")
    if shape and shape.num_experts and ALL_LINEAR in lora.target_modules:
        title = f"adapters of the experts of a {shape.architecture} model are not supported"
        hint = "name the layers of the attention, for example `[q_proj, v_proj]`"
        yield FieldProblem(field="lora.target_modules", title=title, hint=hint)
    elif shape:
        yield from _find_name_problems(lora, shape, known_problems=ends)


def _find_name_problems(lora: LoraSpec, shape: ModelShape, *, known_problems: list[str]) -> Iterator[FieldProblem]:
    layers = list_linear_layers(shape)
    hint = f"its linear layers are {join_names((layer.name.rpartition('.')[2] for layer in layers), limit=9)}"
    is_valid = True
    for field, names in (("target_modules", lora.target_modules), ("exclude_modules", lora.exclude_modules)):
        for name in names:
            if name != ALL_LINEAR and name not in known_problems and not any(layer.matches((name,)) for layer in layers):
                is_valid = False
                title = f"a {shape.architecture} model has no linear layer `{name}`"
                yield FieldProblem(field=f"lora.{field}", title=title, hint=hint)
    if is_valid and not known_problems and not list_targets(shape, lora):
        title = "no layer is left for an adapter"
        yield FieldProblem(field="lora.exclude_modules", title=title, hint="exclude fewer layers")


def _find_nf4_problems(spec: TrainFields, shape: ModelShape | None) -> Iterator[FieldProblem]:
    """Yield every violation of the rules for a spec with a quantised base; `shape` as in `find_problems`."""
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
        cause = f"the number of weights in a quantised layer is a multiple of {NF4_BLOCK * NF4_SCALES}"
        yield FieldProblem(field="lora.quantize", title=title, detail=cause, hint="remove `lora.quantize`")


def _find_float8_problems(spec: TrainFields, shape: ModelShape | None) -> Iterator[FieldProblem]:
    """Yield every violation of the rules for a spec with fp8; `shape` as in `find_problems`."""
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
    if tokens % FLOAT8_MULTIPLE:
        title = f"`precision: fp8` needs a multiple of {FLOAT8_MULTIPLE} tokens on each rank, and a micro-batch has {tokens}"
        hint = "change `sequence_length` or `micro_batch_size`"
        yield FieldProblem(field="sequence_length", title=title, hint=hint)
    if shape and not count_float8_weights(shape):
        title = f"no linear layer of the {shape.architecture} model has widths that are "
        title += f"multiples of {FLOAT8_MULTIPLE}, as fp8 needs"
        yield FieldProblem(field="precision", title=title, hint="use `precision: bf16`")
