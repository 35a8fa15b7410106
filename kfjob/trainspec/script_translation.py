"""Translate arguments of the published training scripts to fields of `TrainSpec`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem
from kfjob.trainspec.model_shapes import PRESETS
from kfjob.trainspec.script_arguments import SCRIPT_ARGUMENTS, ScriptArgument, UnsupportedValueError, parse_switch
from kfjob.trainspec.train_spec import SWITCHES, TrainSpec

_PRECISION: Mapping[str, str] = MappingProxyType({"bf16-mixed": "bf16", "16-mixed": "fp16", "32-true": "fp32", "32": "fp32"})
"""Precisions by Fabric's names that differ from ours."""

_COMBINED = ("checkpoint", "resume", "resume_from_checkpoint", "precision")
"""Arguments that depend on each other, or that keep their name and change their value."""


class Translation(Struct, frozen=True):
    """The fields of TrainSpec that arguments become."""

    values: JsonObject
    origins: Mapping[str, str]
    """The argument by the field that it became, with a dot for a part of a field."""
    warnings: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()


def translate_arguments(arguments: JsonMapping, *, overrides: Collection[str] = ()) -> Translation:
    """Return the fields that arguments become. Unknown names stay as they are: the validation of the fields reports them.

    Arguments in `overrides` win over others that set the same field.
    """
    return _Translator(arguments, overrides).translate()


class _Translator:
    """Collects the fields, their origins and the problems of one set of arguments."""

    def __init__(self, arguments: JsonMapping, overrides: Collection[str]) -> None:
        self._arguments = arguments
        self._overrides = overrides
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
        except UnsupportedValueError as error:
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
        """Set a field that an argument becomes; two arguments may set it to the same value only, unless one overrides."""
        other = self._origins.get(field, field)
        if field not in self._values or self._overrides_other(argument, other):
            self._values[field] = value
            self._origins[field] = argument
        elif self._values[field] != value and not self._overrides_other(other, argument):
            title = f"`{argument}` and `{other}` both set `{field}`"
            self._problems.append(Problem(title=title, path=argument, hint="remove one of them"))

    def _overrides_other(self, argument: str, other: str) -> bool:
        return argument in self._overrides and other not in self._overrides

    def _convert_precision(self) -> None:
        value = str(self._values.get("precision", "")).lower()
        if precision := _PRECISION.get(value):
            self._values["precision"] = precision

    def _combine_resume(self) -> None:
        """Set `resume` from the scripts' three arguments, one of which has the same name as our field."""
        arguments = self._arguments
        resume, checkpoint = arguments.get("resume"), arguments.get("checkpoint")
        ignores = str(resume).lower() in ("false", "0") and str(checkpoint or "none").lower() not in ("none", "null")
        if ignores and not self._overrides_other("resume", "checkpoint"):
            title, hint = f"`resume: false` ignores `checkpoint: {checkpoint}`", "remove one of them"
            self._problems.append(Problem(title=title, path="checkpoint", hint=hint))
        if "resume" in arguments and str(resume).lower() in SWITCHES:
            self._values["resume"] = (arguments.get("checkpoint") or "auto") if parse_switch(resume) else "none"
        elif arguments.get("checkpoint"):
            self._set("resume", arguments["checkpoint"], "checkpoint")
        if folder := arguments.get("resume_from_checkpoint"):
            is_same = str(folder).rstrip("/") == str(arguments.get("checkpoint_dir", "")).rstrip("/")
            self._set("resume", "auto" if is_same else folder, "resume_from_checkpoint")

    def _combine_betas(self) -> None:
        default = TrainSpec.model_fields["betas"].default
        given = self._values.get("betas")
        pair = list(given if isinstance(given, list | tuple) and len(given) == len(default) else default)
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
        if any(self._overrides_other(name, origin) for name in ("model", "model_name")):
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
