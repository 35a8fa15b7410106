"""What pydantic found, in our words."""

from __future__ import annotations

import difflib
import re
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kfjob.errors import Problem
from kfjob.spec.job import JobSpec
from kfjob.spec.script_arguments import SCRIPT_ARGUMENTS
from kfjob.spec.yaml_text import Path, Positions, join_path, parse_path


def describe_kind(value: object) -> str:
    """What a value is, for a message."""
    names = {
        bool: "yes-or-no value",
        int: "number",
        float: "number",
        str: "text",
        list: "list",
        dict: "mapping",
        type(None): "nothing",
    }
    return names.get(type(value), type(value).__name__)


_UNION_TAGS = {
    "str",
    "ModelShape",
    "env:text",
    "env:source",
    "[key]",
}  # pydantic names the branch of a union, and that it means a key


def make_problem(detail: ErrorDetails, positions: Positions) -> Problem:
    """One fault, with its place."""
    path = tuple(part for part in detail["loc"] if part not in _UNION_TAGS)
    context = detail.get("ctx", {})
    if "path" in context:
        path = parse_path(context["path"])
    name = join_path(path)
    if detail["type"] == "extra_forbidden":
        problem = Problem(title=f"unknown field `{path[-1]}`", path=name, hint=_hint(path))
        return positions.locate(problem, path, at_key=True)
    if detail["type"] == "missing":
        return positions.locate(Problem(title=f"`{name}` is missing", path=name), path)
    title = _title(detail, name)
    return positions.locate(Problem(title=title, path=name, detail=context.get("detail"), hint=context.get("hint")), path)


_OTHERS_WORDS = {
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
"""The names of torchrun and of the operator, for people who bring them along, in snake case."""


def _hint(path: Path) -> str:
    """What the field may have been meant to be."""
    word = re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", str(path[-1])).lower()
    known = sorted(_fields_at(JobSpec, path[:-1]))
    others = SCRIPT_ARGUMENTS if path[:-1] == ("train",) else ()
    close = difflib.get_close_matches(word, [*known, *others], n=1)
    if word in _OTHERS_WORDS and not (close and close[0] == word):
        return _OTHERS_WORDS[word]
    return f"did you mean `{close[0]}`?" if close else f"known here: {', '.join(known)}"


_WANTED = {
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
_LIMITS = {
    "greater_than_equal": "at least",
    "greater_than": "more than",
    "less_than_equal": "at most",
    "less_than": "less than",
}


def _title(detail: ErrorDetails, name: str) -> str:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    shown = f"`{given}`" if isinstance(given, str | int | float) else "empty" if given is None else f"a {describe_kind(given)}"
    if kind in _WANTED:
        return f"`{name}` must be {_WANTED[kind]}, not {shown}"
    if kind in _LIMITS:
        return f"`{name}` must be {_LIMITS[kind]} {next(iter(context.values()))}, not {shown}"
    if kind == "literal_error":
        return f"`{name}` must be one of {context['expected'].replace(chr(39), '`')}, not {shown}"
    return detail["msg"].removeprefix("Value error, ")


def _fields_at(model: type[BaseModel], path: Path) -> set[str]:
    """The names of the fields that a mapping at `path` may have."""
    current: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int) or current is None:
            continue
        info = current.model_fields.get(part)
        current = _model_in(info) if info else None
    return set(current.model_fields) if current else set()


def _model_in(info: FieldInfo) -> type[BaseModel] | None:
    candidates: list[Any] = [info.annotation]
    while candidates:
        candidate = candidates.pop()
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
        candidates += get_args(candidate)
    return None
