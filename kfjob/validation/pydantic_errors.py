"""Convert pydantic's errors into problems in kfjob's own words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from kfjob.base.errors import Problem
from kfjob.base.text import find_similar
from kfjob.redaction import Redactor, cut_text, is_secret_name
from kfjob.validation.field_paths import Path, Positions, join_path, parse_path
from kfjob.validation.field_suggestions import suggest_field
from kfjob.validation.model_fields import find_model

_KINDS: dict[type, str] = {
    bool: "yes-or-no value",
    int: "number",
    float: "number",
    str: "text",
    list: "list",
    dict: "mapping",
    type(None): "nothing",
}
_UNION_TAGS = frozenset({"str", "ModelShape", "env:text", "env:source", "master:switch", "master:section", "[key]"})
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
_PYDANTIC_SUBJECT = r"^(Input|String|Value|List|Tuple|Dictionary) should"
"""How pydantic's own messages begin."""
_LONG_TEXT, _LONG_NUMBER = 200, 10**30
_NO_POSITIONS = Positions()
_TRUTH_VALUES = "YAML reads `yes`, `no`, `on` and `off` as true or false"
_LIMITS = {
    "greater_than_equal": "at least",
    "greater_than": "more than",
    "less_than_equal": "at most",
    "less_than": "less than",
}


def describe_kind(value: object) -> str:
    """Return the kind of a value for a message: `mapping`, `list`, `text`."""
    return _KINDS.get(type(value), type(value).__name__)


def find_path(detail: ErrorDetails) -> Path:
    """Return the path of the field that an error is about."""
    context = detail.get("ctx", {})
    if "path" in context:
        path = parse_path(context["path"])
        is_in_master = detail["loc"][:1] == ("master",) and len(detail["loc"]) > 1  # whose sections are also the job's
        return ("master", *path) if is_in_master else path
    return tuple(part for part in detail["loc"] if part not in _UNION_TAGS)


def make_problems(
    details: Sequence[ErrorDetails], model: type[BaseModel], positions: Positions = _NO_POSITIONS
) -> list[Problem]:
    """Return the problems for the errors in the fields of `model`, with their positions; one mistake is one problem.

    A field whose name is misspelled is not missing.
    """
    unknown = [find_path(detail) for detail in details if _is_unknown(detail)]
    meant = [field for path in unknown if (field := suggest_field(path, model).field)]

    def is_meant(detail: ErrorDetails) -> bool:
        if detail["type"] == "nothing_to_run":
            return any(field[0] in ("command", "train") for field in meant)
        return detail["type"] == "missing" and find_path(detail) in meant

    return [
        positions.locate(make_problem(detail, model), find_path(detail), at_key=_is_unknown(detail))
        for detail in details
        if not is_meant(detail)
    ]


def _is_unknown(detail: ErrorDetails) -> bool:
    return detail["type"] == "extra_forbidden"


def make_problem(detail: ErrorDetails, model: type[BaseModel], show: Callable[[Path], str] = join_path) -> Problem:
    """Return the problem for one error in the fields of `model`; `show` writes the field's path as the user knows it."""
    path, context = find_path(detail), detail.get("ctx", {})
    name = show(path)
    if _is_unknown(detail):
        return Problem(title=f"unknown field `{path[-1]}`", path=name, hint=suggest_field(path, model).hint)
    if detail["type"] == "missing":
        return Problem(title=f"`{name}` is missing", path=name)
    hint = context.get("hint") or _suggest_value(detail, path, model)
    title = Redactor().text(_make_title(detail, name))  # it may quote the value
    return Problem(title=title, path=name, detail=context.get("detail"), hint=hint)


def _suggest_value(detail: ErrorDetails, path: Path, model: type[BaseModel]) -> str | None:
    """Return a hint with the form that the field takes, or with the most similar of its choices."""
    kind, value = detail["type"], detail["input"]
    if kind in ("model_type", "model_attributes_type") and path and (section := find_model(model, path)):
        return f"write `{path[-1]}: {{FIELD: VALUE}}`; the fields are {', '.join(sorted(section.model_fields))}"
    if kind == "literal_error":
        suggestion = suggest_choice(value, re.findall(r"'([^']*)'", detail["ctx"]["expected"]))
        return f"did you mean `{suggestion}`?" if suggestion else None
    if kind == "string_type" and isinstance(value, int | float):
        return f"write it in quotes; {_TRUTH_VALUES}" if isinstance(value, bool) else "write it in quotes"
    if kind in ("int_type", "float_type") and isinstance(value, bool):
        return f"write a number; {_TRUTH_VALUES}"
    return None


def suggest_choice(value: object, choices: Sequence[str]) -> str | None:
    """Return the choice that is most similar to a text."""
    spellings = {choice.lower(): choice for choice in choices}
    similar = find_similar(str(value)[:_LONG_TEXT].lower(), spellings)
    return spellings[similar] if similar else None


def _make_title(detail: ErrorDetails, name: str) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    shown = _show_value(value, name)
    if kind in _EXPECTED:
        return f"`{name}` must be {_EXPECTED[kind]}, not {shown}"
    if kind in _LIMITS:
        return f"`{name}` must be {_LIMITS[kind]} {next(iter(context.values())):.15g}, not {shown}"
    if kind == "literal_error":
        return f"`{name}` must be one of {context['expected'].replace(chr(39), '`')}, not {shown}"
    if kind == "json_invalid":
        return f"the text is not valid JSON: {context['error']}"
    message = detail["msg"].removeprefix("Value error, ")
    return re.sub(_PYDANTIC_SUBJECT, lambda _: f"`{name}` must", message)  # a name may have a backslash


def _show_value(value: object, name: str) -> str:
    """Return a value as a message shows it: only its kind if its field may hold a secret."""
    if value is None:
        return "empty"
    may_be_secret = name.startswith("env.") or is_secret_name(name)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    text = str(value) if not isinstance(value, int) or abs(value) < _LONG_NUMBER else "a number with many digits"
    text = text if len(text) <= _LONG_TEXT else f"{cut_text(text, _LONG_TEXT)}…"
    return f"`{text}`" if isinstance(value, str | int | float) and not may_be_secret else f"a {describe_kind(value)}"
