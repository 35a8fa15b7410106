"""`TrainSpec` as a command line, and back.

`to_argv` and `from_argv` are each other's inverse. Only what differs from its default is passed on, so that an image and a
command line tool of different versions work together for as long as the job uses nothing that one of them does not know.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from kfjob.errors import Problem, SpecError
from kfjob.spec.base import validate_fields
from kfjob.spec.models import PRESETS
from kfjob.spec.paths import Path, join_path
from kfjob.spec.problems import make_problem
from kfjob.spec.script_arguments import SCRIPT_ARGUMENTS, translate_arguments
from kfjob.spec.train import TrainSpec


def to_argv(spec: TrainSpec) -> list[str]:
    """The trainer's arguments for `spec`: `--name=value` for each field that differs from its default, in the fields' order.

    A text that would be read as something else (`null`, `[1]`) is quoted, as JSON does it.
    """
    argv = []
    for name, field in TrainSpec.model_fields.items():
        value = getattr(spec, name)
        if field.is_required() or value != field.default:
            plain = isinstance(value, str) and _parsed(value) == value
            text = value if plain else json.dumps(_plain(value), separators=(",", ":"))
            argv.append(f"--{name.replace('_', '-')}={text}")
    return argv


def from_argv(argv: Sequence[str]) -> TrainSpec:
    """`read_argv` without its notes."""
    return parse_argv(argv)[0]


def parse_argv(argv: Sequence[str]) -> tuple[TrainSpec, list[Problem]]:
    """The spec, and what was accepted and changes nothing. Names of other scripts are translated.

    Read `--name=value` and `--name value`; a bare `--name` and `--no-name` set a switch.

    Raises:
        SpecError: with every problem found: unknown and doubled arguments, missing and wrong values.
    """
    problems: list[Problem] = []
    given: dict[str, Any] = {}
    for argument, text in _pairs(argv, problems):
        if argument.replace("_", "-") == "--local-rank":
            continue  # deepspeed's launcher and the older one of torch say it, and LOCAL_RANK too
        name, value = _known(argument, text, problems)
        if name in given:
            problems.append(Problem(title=f"`{argument}` is given twice", path=argument))
        elif name:
            given[name] = value
    translated = translate_arguments(given)
    problems += [replace(problem, path=_flag(problem.path)) for problem in translated.problems]
    try:
        spec = validate_fields(TrainSpec, translated.values)
    except ValidationError as error:
        problems += [make_problem(detail, TrainSpec, _show_flag) for detail in error.errors(include_url=False)]
        raise SpecError(problems) from None
    if problems:
        raise SpecError(problems)
    return spec, [replace(note, path=_flag(note.path)) for note in translated.notes]


def format_help(program: str = "torchrun … -m kfjob.trainer") -> str:
    """`--help`, made from the fields."""
    lines = [f"usage: {program} --model MODEL --data PATH --max-steps N [--name=value …]", ""]
    for name, field in TrainSpec.model_fields.items():
        default = "required" if field.default is PydanticUndefined else f"default {json.dumps(_plain(field.default))}"
        choices = _choices(field.annotation)
        lines.append(f"  --{name.replace('_', '-')} {'|'.join(choices) if choices else ''}".rstrip())
        lines.append(f"        {field.description} ({'unset by default' if default == 'default null' else default})")
    return "\n".join([*lines, "", f"presets: {', '.join(PRESETS)}"])


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_defaults=True) if isinstance(value, BaseModel) else value


def _choices(annotation: Any) -> tuple[str, ...]:
    return tuple(annotation.__args__) if getattr(annotation, "__origin__", None) is Literal else ()


def _pairs(argv: Sequence[str], problems: list[Problem]) -> Iterable[tuple[str, str | None]]:
    """Split the command line into (argument, text); text is None for a bare switch."""
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--") or argument == "--":
            problems.append(Problem(title=f"unexpected `{argument}`", hint="every argument has a name: `--name=value`"))
        elif "=" in argument:
            name, _, text = argument.partition("=")
            yield name, text
        else:
            yield argument, rest.pop(0) if rest and not rest[0].startswith("--") else None


def _known(argument: str, text: str | None, problems: list[Problem]) -> tuple[str | None, Any]:
    """The field's name and its value; (None, None) after noting why there is none."""
    fields = TrainSpec.model_fields
    name = argument.removeprefix("--").replace("-", "_")
    positive = name.removeprefix("no_")
    if name not in fields and positive in fields and fields[positive].annotation is bool and text is None:
        return positive, False
    if name in SCRIPT_ARGUMENTS and name not in fields:
        return name, text if text is not None else True
    if name not in fields:
        near = difflib.get_close_matches(name, [*fields, *SCRIPT_ARGUMENTS], n=1)
        hint = f"did you mean `{_flag(near[0])}`?" if near else "`--help` lists all arguments"
        problems.append(Problem(title=f"unknown argument `{argument}`", hint=hint))
    elif text is not None:
        return name, _parsed(text)
    elif fields[name].annotation is bool:
        return name, True
    else:
        problems.append(Problem(title=f"`{argument}` needs a value", path=argument))
    return None, None


def _parsed(text: str) -> Any:
    """JSON for shapes, pairs, quoted texts and null; all else is text, which pydantic turns into the field's type."""
    if text[:1] in ("{", "[", '"') or text == "null":
        try:
            return json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            return text
    return text


def _show_flag(path: Path) -> str:
    return _flag(join_path(path)) if path else ""


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
