"""Parse an env file, with one `NAME=value` on each line. Pure.

The syntax is a shell's, with `export`, quotes, comments, and references to names of earlier lines, with or without braces. But
no command is run, and no value comes from anywhere but the file itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfjob.errors import Problem, SpecError
from kfjob.spec.variables import REFERENCE, Resolution, Variables

_ASSIGNMENT = re.compile(r"[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=")
_BLANK = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_PIECE = re.compile(r"'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\"|(?P<plain>(?:[^\s'\"\\]|\\.)+)", re.DOTALL)
_COMMAND = re.compile(r"(?<!\\)(?:\$\(|`)")
_ESCAPED = {"double": re.compile(r"\\(\n|[\"\\$`])"), "plain": re.compile(r"\\(\n|.)")}
_UNRESOLVED = (Resolution.MISSING, Resolution.EMPTY, Resolution.NESTED)


def parse_env_file(text: str, *, file: str | None = None) -> dict[str, str]:
    """Return the values by name; a later line overrides an earlier one.

    Raises:
        SpecError: a line has another form, a quote is open, a name has no value, or a value holds a command.
    """
    return _Parser(text.replace("\r\n", "\n"), file).parse()


class _Parser:
    """Reads one text from start to end."""

    def __init__(self, text: str, file: str | None) -> None:
        self._text = text
        self._file = file
        self._offset = 0
        self._values: dict[str, str] = {}
        self._problems: list[Problem] = []

    def parse(self) -> dict[str, str]:
        while self._offset < len(self._text):
            if blank := _BLANK.match(self._text, self._offset):
                self._offset = blank.end()
            elif assignment := _ASSIGNMENT.match(self._text, self._offset):
                self._offset = assignment.end()
                self._values[assignment["name"]] = self._parse_value()
            else:
                self._add_problem(self._offset, "the line is not `NAME=value`")
                self._skip_line()
        if self._problems:
            raise SpecError(self._problems)
        return self._values

    def _parse_value(self) -> str:
        """Return the value at the offset, and move to the next line."""
        parts = []
        while piece := _PIECE.match(self._text, self._offset):
            kind = piece.lastgroup or ""
            part = piece[kind]
            if kind != "single":
                for title in self._check_references(part):
                    self._add_problem(piece.start(), title)
                escaped_values = {name: value.replace("\\", r"\\") for name, value in self._values.items()}
                part = Variables(values=escaped_values).replace(part)
                part = _ESCAPED[kind].sub(lambda escaped: escaped[1].strip("\n"), part)
            parts.append(part)
            self._offset = piece.end()
        if end := _BLANK.match(self._text, self._offset):
            self._offset = end.end()
        else:
            is_quote = self._text[self._offset] in "'\""
            title = "a quote is not closed" if is_quote else "unexpected text after the value"
            self._add_problem(self._offset, title, hint="quote values that contain spaces")
            self._skip_line()
        return "".join(parts)

    def _check_references(self, part: str) -> Iterator[str]:
        if _COMMAND.search(part):
            yield "an env file cannot run commands: write the value, or single-quote it if the pod is to run the command"
        variables = Variables(values=self._values)
        for reference in REFERENCE.finditer(part):
            if variables.classify(reference) in _UNRESOLVED:
                yield f"`{reference[0]}` has no value: define the name on an earlier line of this file"

    def _add_problem(self, offset: int, title: str, hint: str | None = None) -> None:
        line = self._text.count("\n", 0, offset) + 1
        column = offset - self._text.rfind("\n", 0, offset)
        self._problems.append(Problem(title=title, file=self._file, line=line, column=column, hint=hint))

    def _skip_line(self) -> None:
        self._offset = self._text.find("\n", self._offset) + 1 or len(self._text)
