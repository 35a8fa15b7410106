"""Parse an env file, whose lines are assignments `NAME=value`. Pure.

The syntax is a shell's, with `export`, quotes, comments, `;`, and references to names of earlier lines, with or without braces.
But no command is run, and no value comes from anywhere but the file itself: what only a shell can compute is an error.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from kfjob.errors import Problem, SpecError
from kfjob.spec.variables import Resolution, Variables, find_references, is_reference

_NO_EFFECT = re.compile(r"set [-+](?:a|o allexport)(?=[ \t]*(?:[;\n#]|\Z))")
"""`set -a` exports the names that follow, and every name of an env file counts anyway."""
_EXPORT = re.compile(r"export(?=[ \t])")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=")
_NAME = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?=[ \t;\n]|\Z)")
_SPACE = re.compile(r"(?:[ \t]|\\\n)+")
_END = re.compile(r"[ \t]*(?:;|(?:(?<![^\s;])#[^\n]*)?(?:\n|\Z))")
_PIECE = re.compile(
    r"'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\"|(?P<plain>(?:[^\s'\"\\$`;&|<>()]|\\.|\$(?![('\"]))+)", re.DOTALL
)
_ESCAPED = {"double": re.compile(r"\\(\n|[\"\\$`])"), "plain": re.compile(r"\\(\n|.)")}
_DOLLAR = re.compile(r"\\.|(?P<command>`|\$\()|(?P<special>\$(?:\{[^}\n]*\}?|[0-9@*#?!$-]))", re.DOTALL)
_HOME = re.compile(r"(?:\A|:)~")
_UNRESOLVED = (Resolution.MISSING, Resolution.EMPTY, Resolution.NESTED)

_COMMAND = "an env file cannot run commands: write the value, or single-quote it if the pod is to run the command"


def parse_env_file(text: str, *, file: str | None = None) -> dict[str, str]:
    """Return the values by name; a later line overrides an earlier one.

    Raises:
        SpecError: a line has another form, a quote is open, a name has no value, or only a shell can compute a value.
    """
    return _Parser(text.removeprefix("\ufeff").replace("\r\n", "\n"), file).parse()


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
            if not (self._accept(_SPACE) or self._accept(_END) or self._accept(_NO_EFFECT)):
                self._parse_statement()
        if self._problems:
            raise SpecError(self._problems)
        return self._values

    def _accept(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Move behind the pattern if it matches at the offset."""
        if match := pattern.match(self._text, self._offset):
            self._offset = match.end()
        return match

    def _parse_statement(self) -> None:
        """Read the assignments up to the end of the line or to a semicolon."""
        exports = self._accept(_EXPORT) and self._accept(_SPACE)
        count = 0
        while not (count and self._accept(_END)):
            start = self._offset
            if count and not self._accept(_SPACE):
                return self._report_unexpected()
            if assignment := self._accept(_ASSIGNMENT):
                self._values[assignment["name"]] = self._parse_value()
            elif exports and (name := self._accept(_NAME)):
                self._check_exported(name)
            elif count:
                title = "unexpected text after the value"
                return self._fail(start, title, hint="quote values that contain spaces")
            else:
                return self._fail(self._offset, "the line is not `NAME=value`", hint=self._shell_hint())
            count += 1
        return None

    def _check_exported(self, name: re.Match[str]) -> None:
        if name["name"] not in self._values:
            title = f"`export {name['name']}` has no value in this file"
            self._add_problem(name.start(), title, hint=self._shell_hint())

    def _parse_value(self) -> str:
        """Return the value at the offset, and move behind it."""
        parts: list[str] = []
        while piece := self._accept(_PIECE):
            kind = piece.lastgroup or ""
            part = piece[kind]
            if kind != "single":
                for title, hint in self._check_part(part, may_have_home=kind == "plain" and not parts):
                    self._add_problem(piece.start(), title, hint=hint)
                escaped_values = {name: value.replace("\\", r"\\") for name, value in self._values.items()}
                part = Variables(values=escaped_values).replace(part)
                part = _ESCAPED[kind].sub(lambda escaped: escaped[1].strip("\n"), part)
            parts.append(part)
        return "".join(parts)

    def _check_part(self, part: str, *, may_have_home: bool) -> Iterator[tuple[str, str | None]]:
        for dollar in _DOLLAR.finditer(part):
            if dollar["command"]:
                yield _COMMAND, self._shell_hint()
            elif dollar["special"] and not is_reference(dollar["special"]):
                yield f"only a shell can compute `{dollar['special']}`", self._shell_hint()
        if may_have_home and _HOME.search(part):
            yield "only a shell can compute `~`: write the path of the folder", self._shell_hint()
        variables = Variables(values=self._values)
        for reference in find_references(part):
            if variables.classify(reference) in _UNRESOLVED:
                yield f"`{reference[0]}` has no value: define the name on an earlier line of this file", None

    def _report_unexpected(self) -> None:
        """Report the character that ended a value: one that only a shell knows, or an open quote."""
        character = self._text[self._offset]
        if self._text.startswith(("$(", "`"), self._offset):
            return self._fail(self._offset, _COMMAND, hint=self._shell_hint())
        if character in "'\"":
            return self._fail(self._offset, "a quote is not closed")
        if character == "$":
            title = f"only a shell can compute `${self._text[self._offset + 1]}…`"
            return self._fail(self._offset, title, hint=self._shell_hint())
        return self._fail(self._offset, f"`{character}` has a meaning for a shell", hint="quote the value")

    def _shell_hint(self) -> str | None:
        """Return the command that lets a shell compute the values."""
        if self._file in (None, "-"):
            return "let a shell compute it, export the names, and use `--env` instead of `--env-file`"
        file = shlex.quote(str(self._file))
        return f"let a shell compute it: `set -a; source {file}; set +a; kfjob submit … --env`"

    def _fail(self, offset: int, title: str, hint: str | None = None) -> None:
        """Report a problem and skip the rest of the line."""
        self._add_problem(offset, title, hint)
        self._offset = self._text.find("\n", self._offset) + 1 or len(self._text)

    def _add_problem(self, offset: int, title: str, hint: str | None = None) -> None:
        line = self._text.count("\n", 0, offset) + 1
        column = offset - self._text.rfind("\n", 0, offset)
        self._problems.append(Problem(title=title, file=self._file, line=line, column=column, hint=hint))
