"""A table of the arguments of two published training scripts, and the fields of `TrainSpec` that they become.

The `train:` section of a spec, the trainer's command line and docs/reference/trainer-arguments.md all use this one table.
The scripts are a fine-tuning of Llama 3 with FSDP through Lightning Fabric (`fabric`), and the FSDP sample for Llama 2 on
Amazon EKS (`eks`). An argument is translated, accepted without effect (with a warning), or rejected with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct

from kfjob.base.common_types import JsonObject

Script = Literal["fabric", "eks"]
Convert = Callable[[Any], JsonObject]
"""Converts an argument's value to fields; a name with a dot, such as `betas.0`, is a part of a field."""

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off", "none", "null", "")


class UnsupportedValueError(ValueError):
    """The trainer has no field for the value; the message says why."""


class ScriptArgument(Struct, frozen=True, kw_only=True):
    """One argument of a script."""

    name: str
    scripts: tuple[Script, ...]
    result: str
    """The field that it becomes, `accepted` (without effect), `checked` or `rejected`."""
    meaning: str
    convert: Convert
    warns: bool = False
    """Whether its use gives a warning with `meaning`, because it has no effect."""


def parse_switch(value: Any) -> bool:
    """Return the value of a switch such as `True`, `1`, `"1"` or `"False"`.

    Raises:
        ValueError: the value is neither true nor false.
    """
    text = str(value).strip().lower()
    if text not in _TRUE + _FALSE:
        raise UnsupportedValueError(f"`{value}` is neither true nor false")
    return text in _TRUE


def _set(name: str, convert: Callable[[Any], Any] = lambda value: value) -> Convert:
    return lambda value: {} if value is None else {name: convert(value)}


def _choose(name: str, choices: Mapping[str, Any]) -> Convert:
    def convert(value: Any) -> JsonObject:
        if str(value).lower() not in choices:
            public = [f"`{choice}`" for choice in choices if not choice.startswith("_")]
            raise UnsupportedValueError(f"`{value}` is not one of {', '.join(public)}")
        return {name: choices[str(value).lower()]}

    return convert


def _accept_only(is_accepted: Callable[[Any], bool], reason: str) -> Convert:
    def convert(value: Any) -> JsonObject:
        if value is not None and not is_accepted(value):
            raise UnsupportedValueError(reason)
        return {}

    return convert


def _reject(reason: str) -> Convert:
    return _accept_only(lambda _: False, reason)


def _drop(_: Any) -> JsonObject:
    return {}


def _is_zero(value: Any) -> bool:
    try:
        return float(value) == 0
    except (TypeError, ValueError):
        return False


def _convert_data(value: Any) -> Any:
    return "allenai/c4" if value == "c4" else value  # the name of the data set on the hub


def _convert_model_type(value: Any) -> JsonObject:
    architectures = {"gpt_neox": "gpt_neox", "llama_v2": "llama", "llama_v3": "llama", "mistral": "mistral"}
    if value == "mixtral":
        raise UnsupportedValueError(
            "no argument of the script has the number of experts: set `model`, as in `model: mixtral-8x7b`"
        )
    if value not in architectures:
        raise UnsupportedValueError(f"`{value}` is not one of {', '.join(f'`{name}`' for name in architectures)}")
    return {"model.architecture": architectures[value]} | ({"model.rope_theta": 500000.0} if value == "llama_v3" else {})


_SHARDING: Mapping[str, str] = MappingProxyType(
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
_DEVICES = (
    "a spec must have the same number in both; the trainer's command line rejects it, because the launcher starts the ranks"
)
_LAUNCHER = "the launcher starts the ranks: set `processes_per_node` of the job, or `--nproc-per-node` of torchrun"
_GATHERS = "FSDP2 always frees the memory of a unit before it gathers the next"
_DROPOUT = "the trainer uses no dropout, like the published recipes of its models; 0 is accepted"
_PLATEAU = "`schedule: wsd` holds the learning rate before it decays"
_TPU = "the trainer has no TPU backend"
_FABRIC: tuple[Script, ...] = ("fabric",)
_EKS: tuple[Script, ...] = ("eks",)
_BOTH: tuple[Script, ...] = ("fabric", "eks")


def _translate(
    name: str, scripts: tuple[Script, ...], result: str, meaning: str, convert: Convert, *, warns: bool = False
) -> ScriptArgument:
    return ScriptArgument(name=name, scripts=scripts, result=result, meaning=meaning, convert=convert, warns=warns)


def _rename(name: str, scripts: tuple[Script, ...], field: str, meaning: str = "") -> ScriptArgument:
    return _translate(name, scripts, f"`{field}`", meaning or "the same", _set(field))


def _keep(name: str, scripts: tuple[Script, ...]) -> ScriptArgument:
    return _translate(name, scripts, f"`{name}`", "the same", _set(name))


_ROWS = (
    # the fabric script, in its order
    _translate("devices", _FABRIC, "checked", _DEVICES, _reject(_LAUNCHER)),
    _translate(
        "tpu",
        _FABRIC,
        "rejected",
        f"{_TPU}; false is accepted",
        _accept_only(lambda v: not parse_switch(v), _TPU),
    ),
    _rename("train_data_dir", _FABRIC, "data", "a tokenised data set with the splits train and validation"),
    _rename("model_name", _FABRIC, "model", "a preset, a folder with config.json, or a model on the hub"),
    _translate("precision", _FABRIC, "`precision`", "bf16-true, or bf16-mixed = bf16, 16-mixed = fp16, 32-true = fp32", _drop),
    _rename("auto_wrap_policy", _FABRIC, "wrap", "the classes of the FSDP units; default: the decoder layers"),
    _translate(
        "sharding_strategy",
        _BOTH,
        "`sharding`",
        "FULL_SHARD and full = full, SHARD_GRAD_OP = shard_grad_op, HYBRID_SHARD and hybrid = hybrid, "
        "HYBRID_SHARD_ZERO2 = hybrid_shard_grad_op, NO_SHARD = no_shard",
        _choose("sharding", _SHARDING),
    ),
    _translate(
        "state_dict_type",
        _FABRIC,
        "`full_state_dict`",
        "checkpoints are always sharded; `full` also writes the weights as one file",
        _choose("full_state_dict", {"full": True, "sharded": False}),
    ),
    _translate("limit_all_gathers", _BOTH, "accepted", _GATHERS, _drop, warns=True),
    _keep("cpu_offload", _BOTH),
    _translate("resume", _FABRIC, "`resume`", "true = auto, or the value of `checkpoint`; false = none", _drop),
    _translate("checkpoint", _FABRIC, "`resume`", "the checkpoint to continue from; not with `resume: false`", _drop),
    _rename("number_epochs", _FABRIC, "epochs"),
    _keep("micro_batch_size", _FABRIC),
    _keep("gradient_accumulation_steps", _FABRIC),
    _keep("grad_clip", _BOTH),
    _rename("max_step", _FABRIC, "max_steps", "optimiser steps"),
    _keep("lr", _BOTH),
    _keep("min_lr", _BOTH),
    _translate(
        "lr_decay",
        _FABRIC,
        "`schedule`",
        "false = constant; true keeps the schedule, which is cosine by default",
        lambda value: {} if parse_switch(value) else {"schedule": "constant"},
    ),
    _keep("warmup_steps", _FABRIC),
    _keep("weight_decay", _BOTH),
    _translate("beta1", _BOTH, "`betas`", "the first value of the pair", _set("betas.0")),
    _translate("beta2", _BOTH, "`betas`", "the second value of the pair", _set("betas.1")),
    _keep("eval_batch_size", _FABRIC),
    _rename("eval_iters", _FABRIC, "eval_batches"),
    _rename(
        "eval_step_interval",
        _FABRIC,
        "eval_every",
        "the same; `evals_per_epoch: 2` also evaluates in the middle and at the end of an epoch",
    ),
    _rename("save_step_interval", _FABRIC, "checkpoint_every", "optimiser steps between checkpoints"),
    _rename("entity", _FABRIC, "wandb_entity"),
    _rename("project", _FABRIC, "wandb_project"),
    _translate(
        "log_model",
        _FABRIC,
        "`wandb_log_model`",
        "all, or true = end, false = none",
        _choose("wandb_log_model", {"all": "all", "end": "end", "true": "end", "false": "none", "none": "none"}),
    ),
    # the eks script, in its order
    _rename("train_batch_size", _EKS, "micro_batch_size", "samples per rank"),
    _rename("val_batch_size", _EKS, "eval_batch_size"),
    _keep("max_steps", _EKS),
    _rename("max_training_steps", _EKS, "max_steps"),
    _keep("epochs", _EKS),
    _keep("seed", _EKS),
    _translate(
        "same_seed",
        _EKS,
        "accepted",
        "weights and data order always depend on the seed alone; dropout also depends on the rank",
        _drop,
        warns=True,
    ),
    _translate(
        "bf16", _EKS, "`precision`", "1 = bf16, 0 = fp32", lambda v: {"precision": "bf16" if parse_switch(v) else "fp32"}
    ),
    _keep("activation_checkpointing", _EKS),
    _translate("offload_activations", _EKS, "`activation_offload`", "the same", _set("activation_offload")),
    _translate(
        "activation_loading_horizon",
        _EKS,
        "accepted",
        "the trainer decides how early it fetches offloaded activations",
        _drop,
        warns=True,
    ),
    _translate(
        "model_type",
        _EKS,
        "`model.architecture`",
        "llama_v2 and llama_v3 = llama, gpt_neox, mistral; for mixtral, set `model`",
        _convert_model_type,
    ),
    _translate(
        "max_context_width",
        _EKS,
        "`sequence_length`",
        "the same; it also sets `model.max_position_embeddings`",
        lambda v: {"sequence_length": v, "model.max_position_embeddings": v},
    ),
    _keep("vocab_size", _EKS),
    _translate("hidden_width", _EKS, "`model.hidden_size`", "the same", _set("model.hidden_size")),
    _translate("intermediate_size", _EKS, "`model.intermediate_size`", "the same", _set("model.intermediate_size")),
    _translate("num_layers", _EKS, "`model.num_hidden_layers`", "the same", _set("model.num_hidden_layers")),
    _translate("num_heads", _EKS, "`model.num_attention_heads`", "the same", _set("model.num_attention_heads")),
    _translate("num_key_value_heads", _EKS, "`model.num_key_value_heads`", "the same", _set("model.num_key_value_heads")),
    _translate("initializer_range", _EKS, "`model.initializer_range`", "the same", _set("model.initializer_range")),
    _translate("rotary_pct", _EKS, "`model.rotary_pct`", "the same, for gpt_neox", _set("model.rotary_pct")),
    _translate("rotary_emb_base", _EKS, "`model.rope_theta`", "the same", _set("model.rope_theta")),
    *(
        _translate(name, _EKS, "rejected", _DROPOUT, _accept_only(_is_zero, _DROPOUT))
        for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_first_pdrop")
    ),
    _rename("lr_decay_style", _EKS, "schedule", "cosine, constant, linear, exponential, plateau"),
    _keep("lr_decay_iters", _EKS),
    _rename("warmup", _EKS, "warmup_fraction", "the fraction of all steps"),
    _translate(
        "plateau",
        _EKS,
        "rejected",
        f"{_PLATEAU}; 0 is accepted",
        _accept_only(_is_zero, _PLATEAU),
    ),
    _translate("dataset", _EKS, "`data`", "c4 = allenai/c4 on the hub", _set("data", _convert_data)),
    _translate("dataset_path", _EKS, "`data`", "the same", _set("data", _convert_data)),
    _rename("dataset_config_name", _EKS, "data_config"),
    _keep("tokenizer", _EKS),
    _translate(
        "resume_from_checkpoint",
        _EKS,
        "`resume`",
        "auto if it equals `checkpoint_dir` (the newest complete checkpoint, or a fresh start); else the newest in the folder",
        _drop,
    ),
    _keep("checkpoint_dir", _EKS),
    _rename("checkpoint_freq", _EKS, "checkpoint_every"),
    _rename("validation_freq", _EKS, "eval_every"),
    _rename("validation_batches", _EKS, "eval_batches"),
    _rename("logging_freq", _EKS, "log_every"),
    _keep("tensorboard_dir", _EKS),
)
SCRIPT_ARGUMENTS: Mapping[str, ScriptArgument] = MappingProxyType({row.name: row for row in _ROWS})
