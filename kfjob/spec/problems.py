"""Convert pydantic's errors into problems in kfjob's own words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kfjob.errors import Problem
from kfjob.spec.paths import Path, join_path, parse_path
from kfjob.spec.script_arguments import SCRIPT_ARGUMENTS

_KINDS: dict[type, str] = {
    bool: "yes-or-no value",
    int: "number",
    float: "number",
    str: "text",
    list: "list",
    dict: "mapping",
    type(None): "nothing",
}
_UNION_TAGS = frozenset({"str", "ModelShape", "env:text", "env:source", "[key]"})
"""Parts of pydantic's paths that are no fields: the branch of a union, and the mark of a key."""
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_PYDANTIC_SUBJECT = re.compile(r"^(Input|String|Value|List|Tuple|Dictionary) should")
"""How pydantic's own messages begin."""
_LIMITS = {
    "greater_than_equal": "at least",
    "greater_than": "more than",
    "less_than_equal": "at most",
    "less_than": "less than",
}
_FOREIGN_NAMES = {
    "standalone": "one node is `nodes: 1`; the operator's `standalone` ends torchrun with an error (`PET_STANDALONE=`)",
    "nnodes": "torchrun's --nnodes is `nodes`, with `elastic: {min, max}` for a range",
    "node_rank": "the operator gives every pod its own rank",
    "master_addr": "the rendezvous knows the pods by their names; a store of your own is `rendezvous.endpoint`",
    "replicas": "the number of pods is `nodes`",
    "nproc_per_node": "torchrun's --nproc-per-node is `processes_per_node`",
    "rdzv_backend": "torchrun's --rdzv-backend is `rendezvous.backend`",
    "rdzv_endpoint": "torchrun's --rdzv-endpoint is `rendezvous.endpoint`",
    "rdzv_id": "torchrun's --rdzv-id is `rendezvous.id`; left out, it is unique for each launch",
    "rdzv_conf": "torchrun's --rdzv-conf is `rendezvous.conf`, a mapping",
    "max_restarts": "torchrun's --max-restarts is `restarts.max`",
    "backoff_limit": "it is `run.backoff_limit`",
    "gpus": "they are `resources.gpus`, or come with `instance`",
}
"""Hints for the names of torchrun and of the operator, in snake case."""


def describe_kind(value: object) -> str:
    """Return the kind of a value for a message: `mapping`, `list`, `text`."""
    return _KINDS.get(type(value), type(value).__name__)


def find_path(detail: ErrorDetails) -> Path:
    """Return the path of the field that an error is about."""
    context = detail.get("ctx", {})
    if "path" in context:
        return parse_path(context["path"])
    return tuple(part for part in detail["loc"] if part not in _UNION_TAGS)


def make_problem(detail: ErrorDetails, model: type[BaseModel], show: Callable[[Path], str] = join_path) -> Problem:
    """Return the problem for one error in the fields of `model`; `show` writes the field's path as the user knows it."""
    path, context = find_path(detail), detail.get("ctx", {})
    name = show(path)
    if detail["type"] == "extra_forbidden":
        return Problem(title=f"unknown field `{path[-1]}`", path=name, hint=_suggest_field(path, model))
    if detail["type"] == "missing":
        return Problem(title=f"`{name}` is missing", path=name)
    return Problem(title=_make_title(detail, name), path=name, detail=context.get("detail"), hint=context.get("hint"))


def _make_title(detail: ErrorDetails, name: str) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    shown = f"`{value}`" if isinstance(value, str | int | float) else "empty" if value is None else f"a {describe_kind(value)}"
    if kind in _EXPECTED:
        return f"`{name}` must be {_EXPECTED[kind]}, not {shown}"
    if kind in _LIMITS:
        return f"`{name}` must be {_LIMITS[kind]} {next(iter(context.values())):.15g}, not {shown}"
    if kind == "literal_error":
        return f"`{name}` must be one of {context['expected'].replace(chr(39), '`')}, not {shown}"
    if kind == "json_invalid":
        return f"the text is not valid JSON: {context['error']}"
    message = detail["msg"].removeprefix("Value error, ")
    return _PYDANTIC_SUBJECT.sub(f"`{name}` must", message)


def _suggest_field(path: Path, root: type[BaseModel]) -> str:
    """Return a hint with the most similar field, or with the field for another program's name."""
    word = re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", str(path[-1])).lower()
    model = _find_model(root, path[:-1])
    fields = sorted(model.model_fields) if model else []
    arguments = SCRIPT_ARGUMENTS if getattr(model, "takes_script_arguments", False) else {}
    if word in arguments and word not in fields:
        argument = arguments[word]
        return f"use {argument.result}" if argument.result[0] == "`" else f"`{word}`: {argument.meaning}"
    similar = difflib.get_close_matches(word, [*fields, *arguments], n=1)
    if word in _FOREIGN_NAMES and word not in similar:
        return _FOREIGN_NAMES[word]
    return f"did you mean `{similar[0]}`?" if similar else f"the fields are {', '.join(fields)}"


def _find_model(root: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """Return the model of the mapping at a path below the root model; None if the schema has no model there."""
    model: type[BaseModel] | None = root
    for part in path:
        if isinstance(part, int) or model is None:
            continue
        info = model.model_fields.get(part)
        model = _find_model_in(info) if info else None
    return model


def _find_model_in(info: FieldInfo) -> type[BaseModel] | None:
    annotations: list[Any] = [info.annotation]
    while annotations:
        annotation = annotations.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
        annotations += get_args(annotation)
    return None
