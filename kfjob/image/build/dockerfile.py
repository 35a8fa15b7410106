"""Read from a Dockerfile what a build needs before it starts: logins for ECR, and values of the arguments in FROM. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress

from kfjob.base.errors import UsageError
from kfjob.image.references import ECR_HOST

_FROM = re.compile(r"^\s*FROM\s+(?:--platform=\S+\s+)?(\S+)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:(\w++)|\{(\w++)(?::-([^}]{0,1000}+))?\})")  # bounded: many `${A:-` without an end
_PLATFORM_ARG = re.compile(r"(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT)")
"""Arguments that a builder sets itself."""


def find_ecr_registries(dockerfile: str, build_args: Mapping[str, str]) -> list[str]:
    """Return the hosts of the private ECR registries that a Dockerfile names, with its arguments substituted."""
    lines = (_substitute(line, values) for line, values in _read_lines(dockerfile, build_args))
    return list(dict.fromkeys(match[0] for line in lines for match in re.finditer(ECR_HOST, line)))


def check_bases(dockerfile: str, build_args: Mapping[str, str]) -> None:
    """Check that each FROM names an image after the substitution.

    Raises:
        UsageError: a build argument in a FROM has no value, so that the name or the tag is empty.
    """
    for line, values in _read_lines(dockerfile, build_args):
        if not (stage := _FROM.match(line)):
            continue
        names = [name for match in _VARIABLE.finditer(stage[1]) if not values.get(name := match[1] or match[2])]
        image = _substitute(stage[1].strip("\"'"), values)
        if not names or (image and image[0] != ":" and image[-1] != ":") or any(map(_PLATFORM_ARG.fullmatch, names)):
            continue
        name = names[0]
        hint = f"set it with `--build-arg {name}=VALUE`"
        if name not in values:
            hint = f"declare it before the first FROM: `ARG {name}`, or `ARG {name}=VALUE` with a default"
        title = f"`FROM {stage[1]}` names no image, because the build argument `{name}` has no value"
        raise UsageError(title, hint=hint)


def _read_lines(dockerfile: str, build_args: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each instruction as one line, with the values of the arguments that are declared so far."""
    values: dict[str, str] = {}
    lines = (line for line in dockerfile.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\[ \t]*\n", "", "\n".join(lines)).splitlines():
        values |= _parse_args(line, values, build_args)
        yield line, values


def _parse_args(line: str, values: Mapping[str, str], build_args: Mapping[str, str]) -> dict[str, str]:
    """Return the values of an ARG instruction, which may declare several; empty for other lines.

    An ARG without a default in a stage gets the value from before the first FROM.
    """
    args: dict[str, str] = {}
    words: list[str] = []
    with suppress(ValueError):  # a quote is not closed: the engine reports it
        words = shlex.split(line) if line.lstrip()[:4].upper() == "ARG " else []
    for word in words[1:]:
        name, has_default, default = word.partition("=")
        known = {**values, **args}
        args[name] = build_args.get(name, _substitute(default, known) if has_default else known.get(name, ""))
    return args


def _substitute(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values.get(match[1] or match[2]) or match[3] or "", text)
