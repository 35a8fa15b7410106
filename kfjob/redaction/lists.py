"""Read lists and objects in brackets under the name of a secret. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfjob.redaction.connectors import SecretName
from kfjob.redaction.extents import OPENER, Extents
from kfjob.redaction.names import rate_name
from kfjob.redaction.values import cut_value, ends_reference, is_secret_value

Span = tuple[int, int]
_PIECE = re.compile(r"[\[({\])}\n]|[bBrRuUfF]{0,2}\\{0,8}[\"'`]|[^\s,;\[\](){}\"'`\\]++")
_KEY = re.compile(r"(?P<name>[\w.-]++)[ \t]*+(?:=>|[:=])(?!/)[ \t]*+", re.ASCII)
_KEY_END = re.compile(r"[ \t]*+(?:=>|[:=])[ \t]*+")
OPEN, _CLOSE = "[({", "])}"
_SMALL_LIST = 80
"""Characters to read of a list after `ListEnds` has read too many in search of the ends of lists."""


class ListEnds:
    """Finds the ends of the lists in one text. The time is linear, because it counts what it reads."""

    def __init__(self, text: str, extents: Extents) -> None:
        """Begin with the whole budget."""
        self._text, self._extents = text, extents
        self._spans_lines = True  # lists in brackets may go on over lines, until one has no end
        self._budget = 1000 + 2 * len(text)  # characters that may be read in search of the ends of lists

    def find(self, start: int) -> int | None:
        """Return where the list or object ends that begins at `start`; None if it has no end."""
        depth, position = 0, start
        limit = len(self._text) if self._spans_lines else self._extents.find_line_end(start)
        limit = min(limit, start + max(self._budget, _SMALL_LIST))
        while match := _PIECE.search(self._text, position, limit):
            position = match.end()
            last = match[0][-1]
            if last in OPEN:
                depth += 1
            elif last in _CLOSE:
                depth -= 1
                if depth == 0:
                    self._budget -= position - start
                    return position
            elif last in "\"'`" and (opener := OPENER.match(self._text, match.start())):
                span = self._extents.read_quoted(opener)
                position = max(position, span[1] if span else position)
                position += len(opener["quote"]) if self._text.startswith(opener["quote"], position) else 0
        self._budget -= limit - start
        self._spans_lines = False
        return None


class Leaves:
    """Reads the values in a list or an object under a name; names in it may tell more than the one of the whole."""

    def __init__(self, text: str, extents: Extents, name: SecretName) -> None:
        """Begin with the name before the list."""
        self._text, self._extents = text, extents
        self._names = [name]  # of the lists and objects around the position
        self._current = name  # of the next value
        self._has_key = False  # the next value follows the key of an object

    def read(self, start: int, end: int) -> Iterator[Span]:
        """Yield the ranges of the values that are secrets."""
        position = start
        while match := _PIECE.search(self._text, position, end):
            if reference := ends_reference(self._text, match.start()):
                position = reference
                self._expect(self._names[-1])
                continue
            span, position = self._read_piece(match)
            if span is None:
                continue
            if not self._has_key and (key := _KEY_END.match(self._text, position)):
                position = key.end()
                self._expect(_choose_name(self._text[slice(*span)], self._names[-1]), has_key=True)
                continue
            if is_secret_value(self._current.text, self._current.strength, cut_value(self._text, span)):
                yield span
            self._expect(self._names[-1])

    def _expect(self, name: SecretName, *, has_key: bool = False) -> None:
        self._current, self._has_key = name, has_key

    def _read_piece(self, match: re.Match[str]) -> tuple[Span | None, int]:
        """Return the range of a key or a value, if the piece begins one, and the position after the piece."""
        text, position, last = self._text, match.end(), match[0][-1]
        if match[0] in tuple(OPEN):
            self._names.append(self._current)
        elif match[0] in tuple(_CLOSE):
            if len(self._names) > 1:
                self._names.pop()
            else:
                self._names = [self._current]
            self._expect(self._names[-1])
        elif last in "\"'`" and (opener := OPENER.match(text, match.start())):
            span = self._extents.read_word(match.start())
            position = max(position, span[1] if span else position)
            return span, position + (len(opener["quote"]) if text.startswith(opener["quote"], position) else 0)
        elif not self._has_key and (key := _KEY.match(text, match.start())):
            self._expect(_choose_name(key["name"], self._names[-1]), has_key=True)
            return None, key.end()
        elif match[0] != "\n":
            return match.span(), position
        return None, position


def _choose_name(key: str, outer: SecretName) -> SecretName:
    strength = rate_name(key)
    return SecretName(key, strength, 0, 0) if strength > outer.strength else outer
