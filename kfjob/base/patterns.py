r"""Regular expressions that need linear time for every text, for patterns that meet text from programs, clusters and users.

Python's `re` backtracks: some patterns need quadratic or exponential time for some lines. RE2 has no backtracking, so it has no
look-around and no back-references (docs/decisions/0011-linear-patterns.md). `\d`, `\w`, `\s` and `\b` mean ASCII here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

_OTHER_SYNTAX = "kfjob uses RE2, whose syntax has no look-ahead, look-behind or back-references"


class PatternError(ValueError):
    """The text is not a regular expression that RE2 understands.

    `names` are the named groups that it has nevertheless, as far as they can be read.
    """

    def __init__(self, message: str, *, hint: str | None = None, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.names = tuple(names)


class Match(Struct, frozen=True):
    """A match. Groups are read as in `re`: `match[1]`, `match["name"]`; None for a group that took no part."""

    matched: Any  # RE2's match in the encoded text
    names: Mapping[str, int]

    def __getitem__(self, group: int | str) -> Any:
        value = self.matched[self.names[group] if isinstance(group, str) else group]
        return None if value is None else value.decode(errors="replace")

    def groups(self) -> tuple[Any, ...]:
        """Return the text of every group."""
        text, spans = self.matched.string, self.matched._spans  # noqa: SLF001 - RE2's own `groups` takes four times as long
        return tuple([None if start < 0 else text[start:end].decode(errors="replace") for start, end in spans[1:]])

    def groupdict(self) -> dict[str, Any]:
        """Return the text of every named group."""
        values = self.groups()
        return {name: values[number - 1] for name, number in self.names.items()}

    @property
    def lines(self) -> tuple[int, int]:
        """The numbers of the first and the last line of the match within the text, from 0."""
        start, end = self.matched.span()
        first = self.matched.string.count(b"\n", 0, start)
        return first, first + self.matched.string.count(b"\n", start, end)

    @property
    def start(self) -> int:
        """The position of the match within the text."""
        return len(self.before)

    @property
    def before(self) -> str:
        """The text before the match."""
        return str(self.matched.string[: self.matched.start()].decode(errors="replace"))

    def around(self, group: str) -> tuple[str, str]:
        """Return the text before and after the group; both are empty for a group that took no part."""
        start, end = self.matched.span(self.names[group])
        text = self.matched.string
        return (text[:start].decode(errors="replace"), text[end:].decode(errors="replace")) if start >= 0 else ("", "")


class Pattern:
    """A regular expression. It is compiled at the first search: most commands need few of the patterns."""

    def __init__(self, text: str) -> None:
        """`text` has RE2's syntax."""
        self.text = text

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    def check(self) -> None:
        """Compile the pattern now.

        Raises:
            PatternError: the text is not a regular expression, or it uses syntax that RE2 does not have.
        """
        _ = self._compiled

    @cached_property
    def names(self) -> Mapping[str, int]:
        """The named groups and their numbers."""
        return {name.decode(): number for name, number in self._compiled.groupindex.items()}

    @cached_property
    def _compiled(self) -> Any:
        import re2

        options = re2.Options()
        options.log_errors = False
        try:
            return re2.compile(self.text.encode(errors="replace"), options)
        except re2.error as err:
            raise _explain(err, self.text) from err

    def search(self, text: str) -> Match | None:
        """Return the first match anywhere in the text."""
        matched = self._compiled.search(text.encode(errors="replace"))
        return Match(matched, self.names) if matched else None

    def match(self, text: str) -> Match | None:
        """Return the match at the start of the text."""
        matched = self._compiled.match(text.encode(errors="replace"))
        return Match(matched, self.names) if matched else None

    def replace(self, text: str, make: Callable[[str], str]) -> str:
        """Return the text with `make(match)` for each match that is not empty."""
        encoded = text.encode(errors="surrogatepass")
        pieces, position = [], 0
        for matched in self._compiled.finditer(encoded):
            if matched.start() < matched.end():
                pieces += [encoded[position : matched.start()], make(matched[0].decode(errors="replace")).encode()]
                position = matched.end()
        return b"".join([*pieces, encoded[position:]]).decode(errors="surrogatepass")

    def find_all(self, text: str) -> Iterator[Match]:
        """Yield all matches that do not overlap."""
        for matched in self._compiled.finditer(text.encode(errors="replace")):
            yield Match(matched, self.names)


_NAME = r"\(\?P?<([A-Za-z_]\w*)"


def _explain(error: Exception, text: str) -> PatternError:
    """Return the error for RE2's message about a pattern."""
    message = error.args[0] if error.args else ""
    message = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    hint = _OTHER_SYNTAX if message.startswith(("invalid perl operator", "invalid escape sequence")) else None
    return PatternError(message, hint=hint, names=re.findall(_NAME, text))
