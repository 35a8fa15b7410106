"""Parse the words of a shell's assignments: quotes, escapes and references. Pure.

The parser knows every form whose value follows from the text and from the values of other names. Each other form, such as
`$(command)`, becomes a `RefusedText` part. The syntax is that of bash 5.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from msgspec import Struct

from kfjob.base.shells import NAME

MAX_NESTING = 50
"""Levels of `${A:-${B:-…}}` and of `$("$("…")")` in an env file."""
_MAX_SHOWN = 60
"""Characters of a word in an error."""
_REFERENCE = re.compile(rf"\$\{{(?P<name>{NAME})(?P<operator>:?[-=?+])?")
_BARE = re.compile(rf"\$({NAME})(?P<continued>\\\n)?")
_SPECIAL = re.compile(r"\$(?:[0-9@*#?!$\[-]|[A-Za-z_0-9]*\\\n)")
"""Also a name before the end of a continued line: a shell reads the name on in the next line."""
_PLAIN = re.compile(r"[A-Za-z0-9_./@%,]+")
"""Characters without a meaning in any place of a word."""
_ENDS_WORD = " \t\n;&|<>()"


class WordError(Exception):
    """A quote, brace or parenthesis has no end; `offset` is where it begins."""

    def __init__(self, title: str, offset: int) -> None:
        """Set the title and the offset."""
        super().__init__(title)
        self.title = title
        self.offset = offset


class Text(Struct, frozen=True):
    """Text that stands for itself."""

    text: str
    is_quoted: bool


class Reference(Struct, frozen=True):
    """`$NAME`, `${NAME}`, or `${NAME:-word}` with one of the operators `-`, `=`, `?` and `+`, with or without a colon."""

    name: str
    operator: str
    word: tuple[Part, ...]
    source: str
    offset: int


class RefusedText(Struct, frozen=True):
    """A form that only a shell can compute; `title` says which, and `form` says it without the text."""

    title: str
    offset: int
    form: str


Part = Text | Reference | RefusedText


class _Mode(Enum):
    """What the parser is inside of; the value is the character that ends it."""

    WORD = ""
    BRACES = "}"
    QUOTES = '"'
    BRACES_IN_QUOTES = "} "

    @property
    def is_quoted(self) -> bool:
        return self in (_Mode.QUOTES, _Mode.BRACES_IN_QUOTES)


_ESCAPABLE = {_Mode.QUOTES: '"\\$`', _Mode.BRACES_IN_QUOTES: '"\\$`}'}


class WordParser:
    """Parses words of a text; `offset` is where the next one begins."""

    def __init__(self, text: str, offset: int) -> None:
        """Start at the offset."""
        self.text = text
        self.offset = offset
        self.names: set[str] = set()
        """The names of all references, also of those inside a default or a message."""
        self._depth = 0

    def parse(self) -> tuple[Part, ...]:
        """Return the parts of the word at the offset, and move behind it.

        Raises:
            WordError: a quote, brace or parenthesis has no end.
        """
        return tuple(self._parse(_Mode.WORD, self.offset))

    def _parse(self, mode: _Mode, start: int) -> Iterator[Part]:
        while True:
            character = self.text[self.offset : self.offset + 1]
            if mode is _Mode.WORD and (not character or character in _ENDS_WORD):
                return
            if not character:
                raise WordError("a quote is not closed" if mode is _Mode.QUOTES else "`${` has no closing brace", start)
            if mode.value[:1] == character:
                self.offset += 1
                return
            yield from self._parse_part(character, mode)

    def _parse_part(self, character: str, mode: _Mode) -> Iterator[Part]:
        start = self.offset
        if plain := _PLAIN.match(self.text, start):
            self.offset = plain.end()
            yield Text(plain[0], is_quoted=mode.is_quoted)
        elif character == "\\":
            yield self._parse_escape(mode)
        elif character == "'" and mode is not _Mode.QUOTES:
            yield self._parse_single_quotes(keep=mode.is_quoted)
        elif character == '"':
            self.offset += 1
            quoted = (Text("", is_quoted=True), *self._parse(_Mode.QUOTES, start))
            if mode.is_quoted:  # bash has rules of its own for `"${A:-"…"}"`
                yield self._refuse("only a shell can compute", start)
            else:
                yield from quoted
        elif character == "$":
            yield self._parse_dollar(mode)
        elif character == "`":
            self._skip_to("`", start)
            yield self._refuse("an env file cannot run the command", start)
        elif character == "~" and not mode.is_quoted and (start == 0 or self.text[start - 1] in " \t\n:=-?+"):
            self.offset += 1
            title = "only a shell can compute `~`: write the path of the folder"
            yield RefusedText(title, start, title)
        else:
            self.offset += 1
            yield Text(character, is_quoted=mode.is_quoted)

    def _parse_escape(self, mode: _Mode) -> Part:
        escaped = self.text[self.offset + 1 : self.offset + 2]
        self.offset += 2
        if mode is _Mode.QUOTES and self._depth:  # bash has rules of its own for quotes inside of `${A:-…}`
            return self._refuse("only a shell can compute", self.offset - 2)
        if escaped == "\n":
            return Text("", is_quoted=False)
        is_kept = mode.is_quoted and escaped not in _ESCAPABLE[mode]
        return Text(f"\\{escaped}" if is_kept or not escaped else escaped, is_quoted=True)

    def _parse_single_quotes(self, *, keep: bool) -> Part:
        """Return the quoted text; inside of `"${A:-…}"` the quotes belong to it."""
        start = self.offset
        end = self.text.find("'", start + 1)
        if end < 0:
            raise WordError("a quote is not closed", start)
        self.offset = end + 1
        quoted = self.text[start + 1 : end]
        if not keep:
            return Text(quoted, is_quoted=True)
        if re.search(r"[$`\\\"}]", quoted):
            return self._refuse("only a shell can compute", start)
        return Text(f"'{quoted}'", is_quoted=True)

    def _parse_dollar(self, mode: _Mode) -> Part:
        start = self.offset
        if self.text.startswith("${", start):
            return self._parse_braces(mode)
        bare = _BARE.match(self.text, start)
        if bare and not bare["continued"]:
            self.offset = bare.end()
            self.names.add(bare[1])
            return Reference(bare[1], "", (), bare[0], start)
        if title := self._skip_refused(mode):
            return self._refuse(title, start)
        self.offset += 1
        return Text("$", is_quoted=mode.is_quoted)

    def _skip_refused(self, mode: _Mode) -> str | None:
        """Move behind a form with `$` that only a shell can compute, and return its title; None for a `$` that is text."""
        start = self.offset
        if self.text.startswith("$(", start):
            self._skip_to(")", start)
            is_arithmetic = self.text.startswith("$((", start)
            return "only a shell can compute the arithmetic" if is_arithmetic else "an env file cannot run the command"
        if self.text.startswith(("$'", '$"'), start) and not mode.is_quoted:
            self.offset = start + 2
            self._skip_quotes(self.text[start + 1], start)
        elif special := _SPECIAL.match(self.text, start):
            self.offset = special.end()
        return "only a shell can compute" if self.offset > start else None

    def _parse_braces(self, mode: _Mode) -> Part:
        start = self.offset
        match = _REFERENCE.match(self.text, start)
        if match is None or not (match["operator"] or self.text.startswith("}", match.end())):
            self._skip_to("}", start)
            return self._refuse("only a shell can compute", start)
        self.offset = match.end()
        self.names.add(match["name"])
        inner = _Mode.BRACES_IN_QUOTES if mode.is_quoted else _Mode.BRACES
        with self._nest("references", start):
            word = tuple(self._parse(inner, start))
        return Reference(match["name"], match["operator"] or "", word, self.text[start : self.offset], start)

    @contextmanager
    def _nest(self, parts: str, start: int) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise WordError(f"the {parts} are nested too deeply", start)
        yield
        self._depth -= 1

    def _refuse(self, title: str, start: int) -> RefusedText:
        source = " ".join(self.text[start : self.offset].split())
        shown = source if len(source) <= _MAX_SHOWN else f"{source[: _MAX_SHOWN - 1]}…"
        form = title if title.endswith(("command", "arithmetic")) else f"{title} this part of the value"
        return RefusedText(f"{title} `{shown}`" if "`" not in shown else f"{title} {shown}", start, form)

    def _skip_to(self, closing: str, start: int) -> None:
        """Move behind the closing character of `${`, `$(` or a backtick at the offset; nested ones and quotes count."""
        opening = {"}": "{", ")": "("}.get(closing)
        self.offset += 1
        depth = 0 if opening else 1
        while depth or self.offset == start + 1:
            character = self.text[self.offset : self.offset + 1]
            if not character:
                raise WordError(f"`{self.text[start : start + 2]}` has no end" if opening else "a backtick has no end", start)
            self.offset += 2 if character == "\\" else 1
            if character == closing:
                depth -= 1
            elif character == opening:
                depth += 1
            elif character in "'\"":
                self._skip_quotes(character, self.offset - 1)

    def _skip_quotes(self, quote: str, start: int) -> None:
        while (character := self.text[self.offset : self.offset + 1]) != quote:
            if not character:
                raise WordError("a quote is not closed", start)
            if quote == '"' and self.text.startswith("$(", self.offset):
                with self._nest("commands", self.offset):
                    self._skip_to(")", self.offset)
            else:
                self.offset += 2 if character == "\\" and (quote == '"' or self.text[start] == "$") else 1
        self.offset += 1
