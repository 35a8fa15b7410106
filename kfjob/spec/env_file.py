"""An env file, `NAME=value` a line, to the names and values that it gives. Pure.

Written as for a shell, with `export`, quotes and comments, and with the names of earlier lines in braces or without; but
nothing is run, and no name comes from anywhere but the file itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfjob.errors import Problem, SpecError
from kfjob.spec.variables import REFERENCE, Fate, Variables

_ASSIGNMENT = re.compile(r"[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=")
_BLANK = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_PIECE = re.compile(r"'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\"|(?P<plain>(?:[^\s'\"\\]|\\.)+)", re.DOTALL)
_COMMAND = re.compile(r"(?<!\\)(?:\$\(|`)")
_ESCAPED = {"double": re.compile(r"\\(\n|[\"\\$`])"), "plain": re.compile(r"\\(\n|.)")}


def parse_env_file(text: str, *, file: str | None = None) -> dict[str, str]:
    """What the file gives; a later line wins.

    Raises:
        SpecError: with every problem that was found: lines of another form, open quotes, unknown names, commands.
    """
    values: dict[str, str] = {}
    problems: list[Problem] = []
    at = 0
    text = text.replace("\r\n", "\n")
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        found = _ASSIGNMENT.match(text, at)
        if not found:
            problems.append(_problem(text, at, "this is not `NAME=value`", file))
            at = _next_line(text, at)
            continue
        value, at = _value(text, found.end(), values, problems, file)
        values[found["name"]] = value
    if problems:
        raise SpecError(problems)
    return values


def _value(text: str, at: int, known: dict[str, str], problems: list[Problem], file: str | None) -> tuple[str, int]:
    """The value that begins at `at`, and where the next line begins."""
    parts = []
    while piece := _PIECE.match(text, at):
        kind = piece.lastgroup or ""
        said = piece[kind]
        if kind != "single":
            problems += (_problem(text, piece.start(), why, file) for why in _faults(said, known))
            inserted = Variables(values={name: value.replace("\\", r"\\") for name, value in known.items()}).replace(said)
            said = _ESCAPED[kind].sub(lambda escaped: escaped[1].strip("\n"), inserted)
        parts.append(said)
        at = piece.end()
    if not (end := _BLANK.match(text, at)):
        why = "a quote is not closed" if text[at] in "'\"" else "after a value comes the end of the line"
        problems.append(_problem(text, at, why, file, hint="put a value with spaces in quotes"))
        return "".join(parts), _next_line(text, at)
    return "".join(parts), end.end()


def _faults(said: str, known: dict[str, str]) -> Iterator[str]:
    if _COMMAND.search(said):
        yield "commands are not run here: write the value, or put it in single quotes if the pod shall run it"
    for reference in REFERENCE.finditer(said):
        if Variables(values=known).fate(reference) in (Fate.MISSING, Fate.EMPTY, Fate.NESTED):
            yield f"`{reference[0]}` has no value: a name must be given on an earlier line of this file"


def _problem(text: str, at: int, title: str, file: str | None, hint: str | None = None) -> Problem:
    line = text.count("\n", 0, at) + 1
    return Problem(title=title, file=file, line=line, column=at - text.rfind("\n", 0, at), hint=hint)


def _next_line(text: str, at: int) -> int:
    return text.find("\n", at) + 1 or len(text)
