"""Arguments of two published training scripts, and the fields of `TrainSpec` that they become.

The `train:` section of a spec, the trainer's command line and docs/reference/trainer-arguments.md all use this one table.
The scripts are a fine-tuning of Llama 3 with FSDP through Lightning Fabric (`fabric`), and the FSDP sample for Llama 2 on
Amazon EKS (`eks`). An argument is translated, accepted without effect (with a warning), or rejected with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from kfjob.common_types import JsonMapping, JsonObject
from kfjob.errors import Problem
from kfjob.spec.models import PRESETS
from kfjob.spec.train import TrainSpec

Script = Literal["fabric", "eks"]
Convert = Callable[[Any], JsonObject]
"""Converts an argument's value to fields; a name with a dot, such as `betas.0`, is a part of a field."""

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off", "none", "null", "")


class _UnsupportedValueError(ValueError):
    """The trainer has no field for the value; the message says why."""


@dataclass(frozen=True, kw_only=True)
class ScriptArgument:
    """One argument of a script."""

    name: str
    scripts: tuple[Script, ...]
    result: str
    """The field that it becomes, `accepted` (without effect) or `rejected`."""
    meaning: str
    convert: Convert
    warns: bool = False
    """Whether its use gives a warning with `meaning`, because it has no effect."""


@dataclass(frozen=True)
class Translation:
    """The fields of TrainSpec that arguments become."""

    values: JsonObject
    origins: Mapping[str, str]
    """The argument by the field that it became, with a dot for a part of a field."""
    warnings: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()


def parse_switch(value: Any) -> bool:
    """Return the value of a switch such as `True`, `1`, `"1"` or `"False"`.

    Raises:
        ValueError: the value is neither true nor false.
    """
    text = str(value).strip().lower()
    if text not in _TRUE + _FALSE:
        raise _UnsupportedValueError(f"`{value}` is neither true nor false")
    return text in _TRUE


def _set(name: str, convert: Callable[[Any], Any] = lambda value: value) -> Convert:
    return lambda value: {} if value is None else {name: convert(value)}


def _choose(name: str, choices: Mapping[str, Any]) -> Convert:
    def convert(value: Any) -> JsonObject:
        if str(value).lower() not in choices:
            raise _UnsupportedValueError(f"`{value}` is not one of {', '.join(f'`{choice}`' for choice in choices)}")
        return {name: choices[str(value).lower()]}

    return convert


def _accept_only(is_accepted: Callable[[Any], bool], reason: str) -> Convert:
    def convert(value: Any) -> JsonObject:
        if value is not None and not is_accepted(value):
            raise _UnsupportedValueError(reason)
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
        raise _UnsupportedValueError("the trainer has no mixture of experts")
    if value not in architectures:
        raise _UnsupportedValueError(f"`{value}` is not one of {', '.join(f'`{name}`' for name in architectures)}")
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
_PRECISION: Mapping[str, str] = MappingProxyType(
    {"bf16-mixed": "bf16", "16-mixed": "fp16", "32-true": "fp32", "32": "fp32", "16-true": "", "64-true": "", "64": ""}
)
"""Precisions by Fabric's names that differ from ours; an empty text means that the trainer does not support it."""
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
    _translate("devices", _FABRIC, "rejected", _LAUNCHER, _reject(_LAUNCHER)),
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
        "llama_v2 and llama_v3 = llama, gpt_neox, mistral; mixtral is rejected",
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

_COMBINED = ("checkpoint", "resume", "resume_from_checkpoint", "precision")
"""Arguments that depend on each other, or that keep their name and change their value."""


def translate_arguments(arguments: JsonMapping) -> Translation:
    """Return the fields that arguments become. Unknown names stay as they are: the validation of the fields reports them."""
    return _Translator(arguments).translate()


class _Translator:
    """Collects the fields, their origins and the problems of one set of arguments."""

    def __init__(self, arguments: JsonMapping) -> None:
        self._arguments = arguments
        self._values = {
            name: value for name, value in arguments.items() if name not in SCRIPT_ARGUMENTS or name in TrainSpec.model_fields
        }
        self._parts: JsonObject = {}
        self._origins: dict[str, str] = {}
        self._warnings: list[Problem] = []
        self._problems: list[Problem] = []

    def translate(self) -> Translation:
        for name, value in self._arguments.items():
            argument = SCRIPT_ARGUMENTS.get(name)
            if argument and name not in _COMBINED and name not in TrainSpec.model_fields:
                self._convert(argument, value)
        self._convert_precision()
        self._combine_resume()
        self._combine_betas()
        self._combine_shape()
        return Translation(self._values, self._origins, tuple(self._warnings), tuple(self._problems))

    def _convert(self, argument: ScriptArgument, value: Any) -> None:
        name = argument.name
        try:
            fields = argument.convert(value)
        except _UnsupportedValueError as error:
            self._problems.append(Problem(title=f"`{name}` is not supported: {error}", path=name))
            return
        if argument.warns:
            title = f"`{name}` has no effect: {argument.meaning}"
            self._warnings.append(Problem(title=title, path=name, severity="warning"))
        for field, converted in fields.items():
            if "." in field:
                self._parts[field] = converted
                self._origins.update({field: name, field.partition(".")[0]: name})
            else:
                self._set(field, converted, name)

    def _set(self, field: str, value: Any, argument: str) -> None:
        """Set a field that an argument becomes; two arguments may set it to the same value only."""
        if field not in self._values:
            self._values[field] = value
            self._origins[field] = argument
        elif self._values[field] != value:
            title = f"`{argument}` and `{self._origins.get(field, field)}` both set `{field}`"
            self._problems.append(Problem(title=title, path=argument, hint="remove one of them"))

    def _convert_precision(self) -> None:
        value = str(self._values.get("precision", "")).lower()
        if precision := _PRECISION.get(value):
            self._values["precision"] = precision
        elif value in _PRECISION:
            title = f"`precision` is not supported: `{value}` is not one of fp32, bf16, fp16 and bf16-true"
            self._problems.append(Problem(title=title, path="precision"))

    def _combine_resume(self) -> None:
        """Set `resume` from the scripts' three arguments, one of which has the same name as our field."""
        arguments = self._arguments
        resume = arguments.get("resume")
        if "resume" in arguments and (str(resume).lower() in ("true", "false") or resume in (0, 1)):
            self._values["resume"] = (arguments.get("checkpoint") or "auto") if parse_switch(resume) else "none"
        elif arguments.get("checkpoint"):
            self._set("resume", arguments["checkpoint"], "checkpoint")
        if folder := arguments.get("resume_from_checkpoint"):
            is_same = str(folder).rstrip("/") == str(arguments.get("checkpoint_dir", "")).rstrip("/")
            self._set("resume", "auto" if is_same else folder, "resume_from_checkpoint")

    def _combine_betas(self) -> None:
        pair = list(TrainSpec.model_fields["betas"].default)
        parts = {name: value for name, value in self._parts.items() if name.startswith("betas.")}
        for name, value in parts.items():
            pair[int(name[-1])] = value
        if parts:
            self._set("betas", pair, self._origins.pop("betas"))

    def _combine_shape(self) -> None:
        """Set `model` from the sizes of the eks script; missing sizes are those of the script's own default model."""
        sizes = {name.removeprefix("model."): value for name, value in self._parts.items() if name.startswith("model.")}
        origin = self._origins.pop("model", "") if sizes else ""
        if not sizes or set(sizes) <= {"max_position_embeddings"}:
            return
        if "model" in self._values:
            title = f"`{origin}` describes a model by its sizes, and `model` names another"
            self._problems.append(Problem(title=title, path=origin, hint="remove one of them"))
            return
        default = PRESETS["gpt-neox-small"].model_dump()
        architecture = sizes.get("architecture", default["architecture"])
        defaults = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"]
        defaults += ["intermediate_size", "rotary_pct"] if architecture == "gpt_neox" else []
        shape = {name: default[name] for name in defaults} | {"architecture": architecture, "intermediate_size": 11008} | sizes
        if architecture == "gpt_neox":
            shape["intermediate_size"] = sizes.get("intermediate_size", 4 * int(shape["hidden_size"]))
        else:
            shape.pop("rotary_pct", None)
        self._values["model"] = {name: value for name, value in shape.items() if value is not None}
        self._origins["model"] = origin
