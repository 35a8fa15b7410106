"""Describe YAML's syntax errors: what is wrong, where it begins, and how to write it."""

from __future__ import annotations

import re

import yaml

from kfjob.base.errors import Problem
from kfjob.redaction import cut_text

_MAX_LINE = 100
"""Characters of a line of YAML that an error quotes."""
_KINDS: tuple[tuple[str, str, str], ...] = (
    # a part of libyaml's message (scanner.c, parser.c), what it means, and the hint
    ("tab character that violates indentation", "a tab indents this line", "indent with spaces"),
    ("did not find expected '-' indicator", "this line is in a list, and is no item of it", "begin each item with `- `"),
    ("did not find expected <document start>", "this line is indented less than the first line", "align both lines"),
    ("expected ',' or ']'", "the list is not closed", "add `]`; commas separate the items"),
    ("expected ',' or '}'", "the mapping is not closed", "add `}`; commas separate the entries"),
    ("unexpected end of stream", "the quoted text is not closed", "add the closing quote"),
    ("unknown escape character", "a backslash in double quotes begins an escape", "use single quotes, or write `\\\\`"),
    ("could not find expected ':'", "the line has no colon", "write `key: value`"),
    ("but found another document", "a job spec is one document, and another begins here", "write one file for each job"),
    ("undefined alias", "`*` begins the name of an alias", "quote the text: `'*…'`"),
    ("expected alphabetic or numeric", "`*` and `&` have a meaning of their own in YAML", "quote the text: `'*…'`"),
    ("expected comment or line break", "text follows `>` or `|`", "begin the text on the next line, or quote it"),
    ("did not find expected key", "this line is indented differently from its neighbours", "align the keys of a mapping"),
)
_AT_OPENING = ("expected ',' or", "unexpected end of stream", "could not find expected ':'")
"""Messages whose context mark is the better position: there the list, the text or the line begins."""


def describe_syntax_error(error: yaml.MarkedYAMLError, text: str, *, file: str | None) -> Problem:
    """Return the problem for an error of YAML's parser, with the line of the text."""
    message = str(error.problem or error.context or "")
    mark = error.problem_mark or error.context_mark
    if error.context_mark and any(part in message for part in _AT_OPENING):
        mark = error.context_mark
    if mark is None:
        return Problem(title="invalid YAML", file=file, detail=message or None)
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    meaning, hint = _explain(message, lines, mark.line, mark.column)
    title = f"invalid YAML: {meaning}" if meaning else "invalid YAML"
    parts = [cut_text(line.strip(), _MAX_LINE)] if meaning else [error.context or "", message]
    detail = " ".join(part for part in parts if part)
    return Problem(title=title, file=file, line=mark.line + 1, column=mark.column + 1, detail=detail or None, hint=hint or None)


def _explain(message: str, lines: list[str], number: int, column: int) -> tuple[str, str]:
    """Return what is wrong and a hint; empty texts if the message has no better words."""
    line = lines[number] if number < len(lines) else ""
    if "cannot start any token" in message:
        character = line[column : column + 1]
        if character == "\t":
            return "a tab indents this line", "indent with spaces"
        return f"a text cannot begin with `{character}`", "quote the text"
    if "mapping values are not allowed" in message:
        return _explain_colon(lines, number, column)
    if "expected ',' or" in message and "${" in line:
        return "`${` begins a mapping here", "quote the reference: `'${NAME}'`"
    for part, meaning, hint in _KINDS:
        if part in message:
            return meaning, hint
    return "", ""


def _explain_colon(lines: list[str], number: int, column: int) -> tuple[str, str]:
    """Explain a colon where no key can be."""
    line = lines[number] if number < len(lines) else ""
    if re.search(r":\s", line[:column]):
        return "the value contains `: `", "quote the whole value, or use a list: `[…]`"
    previous = next((text for text in reversed(lines[:number]) if text.strip() and not text.lstrip().startswith("#")), "")
    if ":" not in previous:
        return "the line before has no colon", "write `key: value`"
    if not re.search(r":(\s|$)", previous):
        return "the line before has no space after its colon", "write `key: value`"
    return "this line is indented deeper than the line before, which has a value", "align the keys of a mapping"
