"""Arguments of two published training scripts, and what each is here: the one table that the `train:` section of a spec, the
trainer's command line and docs/reference/trainer-arguments.md are read by.

The scripts are a fine-tuning of Llama 3 with FSDP through Lightning Fabric (`fabric`), and the FSDP sample for Llama 2 on
Amazon EKS (`eks`). A name of theirs is translated, accepted with a word about why it needs no counterpart, or refused with the
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from kfjob.errors import Problem
from kfjob.spec.models import PRESETS
from kfjob.spec.train import TrainSpec

Script = Literal["fabric", "eks"]
Fields = dict[str, Any]
Convert = Callable[[Any], Fields]

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off", "none", "null", "")


class _Refused(ValueError):
    """The value cannot be had here; the message says why."""


@dataclass(frozen=True, kw_only=True)
class ScriptArgument:
    """One argument of a script."""

    name: str
    scripts: tuple[Script, ...]
    here: str
    """The field, or what becomes of it."""
    meaning: str
    convert: Convert
    note: bool = False
    """Whether `meaning` is said when it is used, because it changes nothing."""


@dataclass(frozen=True)
class Translation:
    """Fields of TrainSpec, and how they came about."""

    values: Fields
    origins: dict[str, str] = field(default_factory=dict)
    """The name that was written, by the field it became, with a dot where it is a part of one."""
    notes: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def yes(value: Any) -> bool:
    """A switch of a script: True, 1, "1", "False" …"""
    text = str(value).strip().lower()
    if text not in _TRUE + _FALSE:
        raise _Refused(f"`{value}` is neither true nor false")
    return text in _TRUE


def _to(name: str, convert: Callable[[Any], Any] = lambda value: value) -> Convert:
    return lambda value: {} if value is None else {name: convert(value)}


def _choice(name: str, choices: Mapping[str, Any]) -> Convert:
    def convert(value: Any) -> Fields:
        if str(value).lower() not in choices:
            raise _Refused(f"`{value}` is none of {', '.join(f'`{choice}`' for choice in choices)}")
        return {name: choices[str(value).lower()]}

    return convert


def _only(accepted: Callable[[Any], bool], reason: str) -> Convert:
    def convert(value: Any) -> Fields:
        if value is not None and not accepted(value):
            raise _Refused(reason)
        return {}

    return convert


def _never(reason: str) -> Convert:
    return _only(lambda _: False, reason)


def _ignored(_: Any) -> Fields:
    return {}


def _zero(value: Any) -> bool:
    try:
        return float(value) == 0
    except (TypeError, ValueError):
        return False


def _data(value: Any) -> Any:
    return "allenai/c4" if value == "c4" else value  # where the hub keeps it


def _model_type(value: Any) -> Fields:
    families = {"gpt_neox": "gpt_neox", "llama_v2": "llama", "llama_v3": "llama", "mistral": "mistral"}
    if value == "mixtral":
        raise _Refused("there are no mixtures of experts here")
    if value not in families:
        raise _Refused(f"`{value}` is none of {', '.join(f'`{name}`' for name in families)}")
    return {"model.architecture": families[value]} | ({"model.rope_theta": 500000.0} if value == "llama_v3" else {})


SHARDING: Mapping[str, str] = MappingProxyType(
    {
        "full_shard": "full",
        "shard_grad_op": "shard_grad_op",
        "hybrid_shard": "hybrid",
        "_hybrid_shard_zero2": "hybrid_shard_grad_op",
        "hybrid_shard_zero2": "hybrid_shard_grad_op",
        "no_shard": "no_shard",
        "full": "full",
        "hybrid": "hybrid",
    }
)
PRECISION: Mapping[str, str] = MappingProxyType(
    {"bf16-mixed": "bf16", "16-mixed": "fp16", "32-true": "fp32", "32": "fp32", "16-true": "", "64-true": "", "64": ""}
)
"""Fabric's names of precisions, where they are not ours."""
_LAUNCHER = "ranks are the launcher's: `processes_per_node` of the job, `--nproc-per-node` of torchrun"
_GATHERS = "FSDP2 frees a unit's memory before it gathers the next, by itself"
_DROPOUT = "the models here are trained without dropout, as their published recipes are; 0 is accepted"
_FABRIC: tuple[Script, ...] = ("fabric",)
_EKS: tuple[Script, ...] = ("eks",)
_BOTH: tuple[Script, ...] = ("fabric", "eks")


def _alias(
    name: str, scripts: tuple[Script, ...], here: str, meaning: str, convert: Convert, *, note: bool = False
) -> ScriptArgument:
    return ScriptArgument(name=name, scripts=scripts, here=here, meaning=meaning, convert=convert, note=note)


def _renamed(name: str, scripts: tuple[Script, ...], here: str, meaning: str = "") -> ScriptArgument:
    return _alias(name, scripts, f"`{here}`", meaning or "the same", _to(here))


def _same(name: str, scripts: tuple[Script, ...]) -> ScriptArgument:
    return _alias(name, scripts, f"`{name}`", "the same", _to(name))


_ROWS = (
    # Fabric's, in its order
    _alias("devices", _FABRIC, "refused", _LAUNCHER, _never(_LAUNCHER)),
    _alias(
        "tpu",
        _FABRIC,
        "refused",
        "there is no TPU backend; false is accepted",
        _only(lambda v: not yes(v), "there is no TPU backend"),
    ),
    _renamed("train_data_dir", _FABRIC, "data", "a tokenised data set with train and validation"),
    _renamed("model_name", _FABRIC, "model", "a preset, a folder with config.json, or a model of the hub"),
    _alias("precision", _FABRIC, "`precision`", "bf16-true, or bf16-mixed = bf16, 16-mixed = fp16, 32-true = fp32", _ignored),
    _renamed("auto_wrap_policy", _FABRIC, "wrap", "classes of the units; unset, the decoder layers are found"),
    _alias(
        "sharding_strategy",
        _BOTH,
        "`sharding`",
        "FULL_SHARD and full = full, SHARD_GRAD_OP = shard_grad_op, HYBRID_SHARD and hybrid = hybrid, "
        "HYBRID_SHARD_ZERO2 = hybrid_shard_grad_op, NO_SHARD = no_shard",
        _choice("sharding", SHARDING),
    ),
    _alias(
        "state_dict_type",
        _FABRIC,
        "`full_state_dict`",
        "checkpoints are sharded; full puts the weights into each as one file besides",
        _choice("full_state_dict", {"full": True, "sharded": False}),
    ),
    _alias("limit_all_gathers", _BOTH, "accepted", _GATHERS, _ignored, note=True),
    _same("cpu_offload", _BOTH),
    _alias("resume", _FABRIC, "`resume`", "true = auto, or `checkpoint` where that is given; false = none", _ignored),
    _alias("checkpoint", _FABRIC, "`resume`", "the checkpoint to go on from; not with `resume: false`", _ignored),
    _renamed("number_epochs", _FABRIC, "epochs"),
    _same("micro_batch_size", _FABRIC),
    _same("gradient_accumulation_steps", _FABRIC),
    _same("grad_clip", _BOTH),
    _renamed("max_step", _FABRIC, "max_steps", "optimiser steps"),
    _same("lr", _BOTH),
    _same("min_lr", _BOTH),
    _alias(
        "lr_decay",
        _FABRIC,
        "`schedule`",
        "false = constant; true leaves the schedule, which is a cosine unless said otherwise",
        lambda value: {} if yes(value) else {"schedule": "constant"},
    ),
    _same("warmup_steps", _FABRIC),
    _same("weight_decay", _BOTH),
    _alias("beta1", _BOTH, "`betas`", "the first of the pair", _to("betas.0")),
    _alias("beta2", _BOTH, "`betas`", "the second of the pair", _to("betas.1")),
    _same("eval_batch_size", _FABRIC),
    _renamed("eval_iters", _FABRIC, "eval_batches"),
    _renamed(
        "eval_step_interval",
        _FABRIC,
        "eval_every",
        "and `evals_per_epoch: 2` for those in the middle and at the end of an epoch",
    ),
    _renamed("save_step_interval", _FABRIC, "checkpoint_every", "in optimiser steps"),
    _renamed("entity", _FABRIC, "wandb_entity"),
    _renamed("project", _FABRIC, "wandb_project"),
    _alias(
        "log_model",
        _FABRIC,
        "`wandb_log_model`",
        "all, or true = end, false = none",
        _choice("wandb_log_model", {"all": "all", "end": "end", "true": "end", "false": "none", "none": "none"}),
    ),
    # the sample's, in its order
    _renamed("train_batch_size", _EKS, "micro_batch_size", "samples of one rank"),
    _renamed("val_batch_size", _EKS, "eval_batch_size"),
    _same("max_steps", _EKS),
    _renamed("max_training_steps", _EKS, "max_steps"),
    _same("epochs", _EKS),
    _same("seed", _EKS),
    _alias(
        "same_seed",
        _EKS,
        "accepted",
        "weights and data order depend on the seed alone, on no rank; dropout on the rank too",
        _ignored,
        note=True,
    ),
    _alias("bf16", _EKS, "`precision`", "1 = bf16, 0 = fp32", lambda v: {"precision": "bf16" if yes(v) else "fp32"}),
    _same("activation_checkpointing", _EKS),
    _alias("offload_activations", _EKS, "`activation_offload`", "the same", _to("activation_offload")),
    _alias(
        "activation_loading_horizon",
        _EKS,
        "accepted",
        "what was offloaded is fetched ahead without being told how far",
        _ignored,
        note=True,
    ),
    _alias(
        "model_type",
        _EKS,
        "`model.architecture`",
        "llama_v2 and llama_v3 = llama, gpt_neox, mistral; mixtral is refused",
        _model_type,
    ),
    _alias(
        "max_context_width",
        _EKS,
        "`sequence_length`",
        "and `model.max_position_embeddings`",
        lambda v: {"sequence_length": v, "model.max_position_embeddings": v},
    ),
    _same("vocab_size", _EKS),
    _alias("hidden_width", _EKS, "`model.hidden_size`", "the same", _to("model.hidden_size")),
    _alias("intermediate_size", _EKS, "`model.intermediate_size`", "the same", _to("model.intermediate_size")),
    _alias("num_layers", _EKS, "`model.num_hidden_layers`", "the same", _to("model.num_hidden_layers")),
    _alias("num_heads", _EKS, "`model.num_attention_heads`", "the same", _to("model.num_attention_heads")),
    _alias("num_key_value_heads", _EKS, "`model.num_key_value_heads`", "the same", _to("model.num_key_value_heads")),
    _alias("initializer_range", _EKS, "`model.initializer_range`", "the same", _to("model.initializer_range")),
    _alias("rotary_pct", _EKS, "`model.rotary_pct`", "of gpt_neox", _to("model.rotary_pct")),
    _alias("rotary_emb_base", _EKS, "`model.rope_theta`", "the same", _to("model.rope_theta")),
    *(
        _alias(name, _EKS, "refused", _DROPOUT, _only(_zero, _DROPOUT))
        for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_first_pdrop")
    ),
    _renamed("lr_decay_style", _EKS, "schedule", "cosine, constant, linear, exponential, plateau"),
    _same("lr_decay_iters", _EKS),
    _renamed("warmup", _EKS, "warmup_fraction", "a share of all steps"),
    _alias(
        "plateau",
        _EKS,
        "refused",
        "`schedule: wsd` holds the rate before it falls; 0 is accepted",
        _only(_zero, "`schedule: wsd` holds the rate before it falls"),
    ),
    _alias("dataset", _EKS, "`data`", "c4 is allenai/c4 on the hub", _to("data", _data)),
    _alias("dataset_path", _EKS, "`data`", "the same", _to("data", _data)),
    _renamed("dataset_config_name", _EKS, "data_config"),
    _same("tokenizer", _EKS),
    _alias(
        "resume_from_checkpoint",
        _EKS,
        "`resume`",
        "auto where it is checkpoint_dir: the newest complete one, a fresh start when there is none; else that folder's newest",
        _ignored,
    ),
    _same("checkpoint_dir", _EKS),
    _renamed("checkpoint_freq", _EKS, "checkpoint_every"),
    _renamed("validation_freq", _EKS, "eval_every"),
    _renamed("validation_batches", _EKS, "eval_batches"),
    _renamed("logging_freq", _EKS, "log_every"),
    _same("tensorboard_dir", _EKS),
)
SCRIPT_ARGUMENTS: Mapping[str, ScriptArgument] = MappingProxyType({row.name: row for row in _ROWS})

_WHOLE = ("checkpoint", "resume", "resume_from_checkpoint", "precision")
"""What only makes sense together with others, or keeps its name and changes its value."""


def translate_arguments(given: Mapping[str, Any]) -> Translation:
    """What a script's arguments are here. Unknown names are left as they are, for whoever checks the fields."""
    done = Translation(
        {name: value for name, value in given.items() if name not in SCRIPT_ARGUMENTS or name in TrainSpec.model_fields}
    )
    parts: Fields = {}
    for name, value in given.items():
        alias = SCRIPT_ARGUMENTS.get(name)
        if alias is None or name in _WHOLE or (name in TrainSpec.model_fields):
            continue
        try:
            made = alias.convert(value)
        except _Refused as refused:
            done.problems.append(Problem(title=f"`{name}` cannot be had here: {refused}", path=name))
            continue
        if alias.note:
            done.notes.append(Problem(title=f"`{name}` changes nothing: {alias.meaning}", path=name, severity="warning"))
        for target, result in made.items():
            if "." in target:
                parts[target] = result
                done.origins.update({target: name, target.partition(".")[0]: name})
            else:
                _put(done, target, result, name)
    _precision(done)
    _resume(given, done)
    _betas(parts, done)
    _shape(parts, done)
    return done


def _put(done: Translation, target: str, value: Any, name: str) -> None:
    if target in done.values:
        before = done.origins.get(target, target)
        if done.values[target] != value:
            done.problems.append(
                Problem(title=f"`{name}` and `{before}` both mean `{target}`", path=name, hint="give one of them")
            )
        return
    done.values[target] = value
    done.origins[target] = name


def _precision(done: Translation) -> None:
    value = str(done.values.get("precision", "")).lower()
    if value in PRECISION:
        if PRECISION[value]:
            done.values["precision"] = PRECISION[value]
        else:
            title = f"`precision` cannot be had here: `{value}` is not among fp32, bf16, fp16 and bf16-true"
            done.problems.append(Problem(title=title, path="precision"))


def _resume(given: Mapping[str, Any], done: Translation) -> None:
    """Three arguments of two scripts, and ours."""
    switch = given.get("resume")
    if "resume" in given and (str(switch).lower() in ("true", "false") or switch in (0, 1)):
        done.values["resume"] = (given.get("checkpoint") or "auto") if yes(switch) else "none"
    elif given.get("checkpoint"):
        _put(done, "resume", given["checkpoint"], "checkpoint")
    if folder := given.get("resume_from_checkpoint"):
        same = str(folder).rstrip("/") == str(given.get("checkpoint_dir", "")).rstrip("/")
        _put(done, "resume", "auto" if same else folder, "resume_from_checkpoint")


def _betas(parts: Fields, done: Translation) -> None:
    pair = list(TrainSpec.model_fields["betas"].default)
    own = {name: value for name, value in parts.items() if name.startswith("betas.")}
    for name, value in own.items():
        pair[int(name[-1])] = value
    if own:
        _put(done, "betas", pair, done.origins.pop("betas"))


def _shape(parts: Fields, done: Translation) -> None:
    """The sample describes a model by its sizes; what it leaves out is as in its own default model."""
    sizes = {name.removeprefix("model."): value for name, value in parts.items() if name.startswith("model.")}
    origin = done.origins.pop("model", "") if sizes else ""
    if not sizes or set(sizes) <= {"max_position_embeddings"}:
        return
    if "model" in done.values:
        title = f"`{origin}` describes a model, and `model` names one"
        done.problems.append(Problem(title=title, path=origin, hint="give one of them"))
        return
    default = PRESETS["gpt-neox-small"].model_dump()
    architecture = sizes.get("architecture", default["architecture"])
    kept = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"]
    kept += ["intermediate_size", "rotary_pct"] if architecture == "gpt_neox" else []
    shape = {name: default[name] for name in kept} | {"architecture": architecture, "intermediate_size": 11008} | sizes
    if architecture == "gpt_neox":
        shape["intermediate_size"] = sizes.get("intermediate_size", 4 * int(shape["hidden_size"]))
    else:
        shape.pop("rotary_pct", None)
    done.values["model"] = {name: value for name, value in shape.items() if value is not None}
    done.origins["model"] = origin
