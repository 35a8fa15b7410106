"""Convert a `TrainSpec` to the trainer's command line, and back.

`to_argv` and `from_argv` are inverse functions. `to_argv` omits fields with their default value (but not a `precision` that was
chosen), so that an image and a command line tool of different versions work together unless the job uses a field that one of
them does not have.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from kfjob.base.errors import Problem, SpecError
from kfjob.base.parsing import ParseError, parse_json
from kfjob.base.text import find_similar
from kfjob.trainspec.defaults import has_default_precision
from kfjob.trainspec.model_shapes import PRESETS
from kfjob.trainspec.script_arguments import SCRIPT_ARGUMENTS
from kfjob.trainspec.script_translation import translate_arguments
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.validation.field_paths import Path, join_path
from kfjob.validation.field_suggestions import map_aliases
from kfjob.validation.pydantic_errors import make_problem
from kfjob.validation.spec_model import list_errors, validate_fields


def to_argv(spec: TrainSpec) -> list[str]:
    """Return the trainer's arguments: `--name=value` for each field that differs from its default, in the order of the fields.

    A text that `from_argv` would parse as another value (`null`, `[1]`) is quoted as in JSON.
    """
    argv = []
    for name, field in TrainSpec.model_fields.items():
        value = getattr(spec, name)
        is_chosen = name == "precision" and not has_default_precision(spec)  # else the device decides
        if field.is_required() or value != field.default or is_chosen:
            is_plain_text = isinstance(value, str) and _parse_value(value) == value
            text = value if is_plain_text else json.dumps(_dump(value), separators=(",", ":"))
            argv.append(f"{_make_flag(name)}={text}")
    return argv


def from_argv(argv: Sequence[str]) -> TrainSpec:
    """Return the spec of a command line, as `parse_argv` does, without the warnings."""
    return parse_argv(argv)[0]


def parse_argv(argv: Sequence[str]) -> tuple[TrainSpec, list[Problem]]:
    """Return the spec of a command line, and warnings about arguments without effect.

    Arguments are `--name=value` or `--name value`; a bare `--name` or `--no-name` sets a switch. The arguments of two other
    scripts are translated (`kfjob.trainspec.script_arguments`). As with argparse, the beginning of one name stands for it.

    Raises:
        SpecError: arguments are unknown, duplicate or missing, or have invalid values; it holds all of these problems.
    """
    parser = _Parser()
    parser.parse(argv)
    translation = translate_arguments(parser.fields)
    problems = parser.problems + [replace(problem, path=_make_flag(problem.path)) for problem in translation.problems]
    try:
        spec = validate_fields(TrainSpec, translation.values)
    except ValidationError as error:
        problems += [_add_hint(make_problem(detail, TrainSpec, _show_path), detail["type"]) for detail in list_errors(error)]
        raise SpecError(problems) from None
    if problems:
        raise SpecError(problems)
    return spec, [replace(warning, path=_make_flag(warning.path)) for warning in translation.warnings]


def format_help(program: str = "torchrun … -m kfjob.trainer") -> str:
    """Return the text of `--help`, from the descriptions of the fields."""
    lines = [f"usage: {program} --model MODEL --data PATH --max-steps N [--name=value …]", ""]
    for name, field in TrainSpec.model_fields.items():
        is_required = field.default is PydanticUndefined
        default = "required" if is_required else f"default: {json.dumps(_dump(field.default))}"
        choices = _list_choices(field.annotation)
        lines.append(f"  {_make_flag(name)} {'|'.join(choices) if choices else ''}".rstrip())
        lines.append(f"        {field.description}" + ("" if default == "default: null" else f" ({default})"))
    return "\n".join([*lines, "", f"presets: {', '.join(PRESETS)}"])


def _dump(value: Any) -> Any:
    return value.model_dump(exclude_defaults=True) if isinstance(value, BaseModel) else value


def _list_choices(annotation: Any) -> tuple[str, ...]:
    return tuple(annotation.__args__) if getattr(annotation, "__origin__", None) is Literal else ()


class _Parser:
    """Collects the fields and the problems of one command line."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.problems: list[Problem] = []

    def parse(self, argv: Sequence[str]) -> None:
        words = list(argv)
        while words:
            argument = words.pop(0)
            if not argument.startswith("--") or argument == "--":
                hint = "every argument has the form `--name=value`"
                self.problems.append(Problem(title=f"unexpected `{argument}`", hint=hint))
            elif "=" in argument:
                name, _, text = argument.partition("=")
                self._add(name, text)
            else:
                self._add(argument, words.pop(0) if words and not words[0].startswith("--") else None)

    def _add(self, argument: str, text: str | None) -> None:
        """Add the field of one argument; the text of a bare switch is None."""
        if argument.replace("_", "-") == "--local-rank":
            return  # DeepSpeed's launcher and torch's old one pass it; LOCAL_RANK has the same value
        name = _complete(argument.removeprefix("--").replace("-", "_"))
        positive_name = name.removeprefix("no_")
        if name not in TrainSpec.model_fields and text is None and _is_switch(positive_name):
            self._set(argument, positive_name, value=False)
        elif name in SCRIPT_ARGUMENTS and name not in TrainSpec.model_fields:
            self._set(argument, name, True if text is None else text)
        elif name not in TrainSpec.model_fields:
            self.problems.append(Problem(title=f"unknown argument `{argument}`", hint=_suggest_argument(name)))
        elif text is not None or _is_switch(name):
            self._set(argument, name, True if text is None else _parse_value(text))
        else:
            self.problems.append(Problem(title=f"`{argument}` needs a value", path=argument))

    def _set(self, argument: str, name: str, value: Any) -> None:
        if name in self.fields:
            self.problems.append(Problem(title=f"duplicate argument `{argument}`", path=argument))
        else:
            self.fields[name] = value


def _complete(name: str) -> str:
    """Return the only name that begins with `name`, as argparse does; without one, `name`."""
    names = {*TrainSpec.model_fields, *SCRIPT_ARGUMENTS}
    matches = [other for other in names if name and other.startswith(name)]
    return matches[0] if len(matches) == 1 and name not in names else name


def _add_hint(problem: Problem, kind: str) -> Problem:
    if problem.path == "--max-steps" and kind == "greater_than":
        return replace(problem, hint="`--dry-run` checks a run without a step; `--epochs` trains on all of the data")
    field = TrainSpec.model_fields.get(problem.path.removeprefix("--").replace("-", "_"))
    return replace(problem, hint=field.description) if kind == "missing" and field else problem


def _suggest_argument(name: str) -> str:
    """Return a hint for an unknown argument: the field that other programs call so, or the most similar argument."""
    alias = map_aliases().get(name)
    names = [*TrainSpec.model_fields, *SCRIPT_ARGUMENTS]
    similar = str(alias[-1]) if alias and alias[0] == "train" else find_similar(name, names)
    return f"did you mean `{_make_flag(similar)}`?" if similar else "`--help` lists all arguments"


def _is_switch(name: str) -> bool:
    field = TrainSpec.model_fields.get(name)
    return field is not None and field.annotation in (bool, bool | None)


def _parse_value(text: str) -> Any:
    """Return the value of a JSON object, list, quoted text or null; all else is text, which pydantic converts."""
    if text[:1] in ("{", "[", '"') or text == "null":
        try:
            return parse_json(text)
        except ParseError:
            return text
    return text


def _make_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _show_path(path: Path) -> str:
    return _make_flag(join_path(path)) if path else ""
