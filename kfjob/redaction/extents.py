"""Find where the value of a secret in text begins and ends: words of shells, quotes, and what encloses a name. Pure."""

from __future__ import annotations

import re

from kfjob.redaction.connectors import SecretName
from kfjob.redaction.names import Strength
from kfjob.redaction.values import is_harmless

Span = tuple[int, int]
NAME = re.compile(r"[\w.-]++", re.ASCII)
OPENER = re.compile(r"[bBrRuUfF]{0,2}(?P<quote>\\{0,8}(?:\"{3}|'{3}|[\"'`]))")
_QUOTED = {
    "'": re.compile(r"(?>(?:[^'\\\n]++|\\[^\n])*)"),
    '"': re.compile(r'(?>(?:[^"\\\n]++|\\[^\n])*)'),
    "`": re.compile(r"(?>(?:[^`\\\n]++|\\[^\n])*)"),
}
_TRIPLE = ("'" * 3, '"' * 3)
BARE = re.compile(r"(?>(?:[^\s\\]++|\\[^\n])+)|\\")
_FIELDS = {
    delimiter: re.compile(rf"{delimiter}(?:[ \t]*+[\"']?[\w.%-]++(?: [\w.%-]++)?[\"']?\s?[=:]|\Z)", re.ASCII)
    for delimiter in "&;,"
}
"""The beginning of the next field after each delimiter."""
_PAIRS = {")": "(", "]": "[", "}": "{", '"': '"', "'": "'", "`": "`", ">": "<"}
_BLANK = re.compile(r"\s*+")
_PUNCTUATION = ":.!?,;"
"""Marks of a sentence after a quoted command."""
WEAK_VALUE = 256
"""Characters of a value that decide whether it is a secret, if its name has other meanings."""
_WINDOW = 200
"""Characters before a name in which a bracket or quote counts as open."""


class Extents:
    """Finds the values in one text."""

    def __init__(self, text: str) -> None:
        """Begin without any known end."""
        self._text = text
        self._word = self._line = (0, -1)

    def read_word(self, start: int) -> Span | None:
        """Return the range of the word of a shell at `start`, without its quotes."""
        if opener := OPENER.match(self._text, start):
            return self.read_quoted(opener)
        end = self.find_word_end(start)
        return _give_back(self._text, start, start, end) if start < end else None

    def read_quoted(self, opener: re.Match[str]) -> Span | None:
        """Return the range between quotes; without a closing quote, the rest of the line."""
        text, quote, start = self._text, opener["quote"], opener.end()
        if len(quote) == 1:
            inner = _QUOTED[quote].match(text, start)
            end = inner.end() if inner else start
            is_closed = text.startswith(quote, end)
        else:
            line_end = len(text) if quote in _TRIPLE else self.find_line_end(start)
            found = text.find(quote, start, line_end)
            end, is_closed = (found, True) if found >= 0 else (self.find_line_end(start), False)
        after = end + len(quote)
        if is_closed and text[after : after + 1] in ("'", '"'):  # the shell joins adjacent quotes
            joined = self.find_word_end(after)
            if joined > after + 1 and text[after + 1] not in ",;)]}":
                return start, joined
        if is_closed and (word := NAME.match(text, after)) and start < end:
            return start, word.end()
        return (start, end) if start < end else None

    def read_bare(self, name: SecretName, start: int, *, has_space: bool) -> Span | None:
        """Return the range of a value without quotes: to the next space, or to the end of what encloses the name."""
        text = self._text
        before = text[max(0, name.start - _WINDOW) : name.start]
        before = before.rpartition("\n")[2]
        quote = before[-1:] if before[-1:] in ("'", '"', "`") else ""
        if quote and (end := text.find(quote, start, self.find_line_end(start))) > start:
            word = BARE.match(text, start, end)
            is_whole = name.strength is Strength.LINE or (name.strength > Strength.WEAK and not has_space)
            if is_whole and word and not (name.text.isupper() and is_harmless(word[0])):  # a variable before a command
                return start, end
            return start, word.end() if word else end
        if name.strength is Strength.LINE:
            blank, end = _BLANK.match(text, start), self.find_line_end(start)
            return (start, end) if blank and blank.end() < end else None
        end = self.find_word_end(start)
        if name.strength is Strength.WEAK and end > start + WEAK_VALUE:
            match = BARE.match(text, start, start + WEAK_VALUE)
            end = match.end() if match else start
        if end == start:
            return None
        for mark in ('"', "`"):
            if before.count(mark) % 2 and (closing := text.find(mark, start, end)) > start:
                end = closing
        return _give_back(text, name.start, start, _find_field_end(text, before[-1:], start, end))

    def find_word_end(self, start: int) -> int:
        """Return where the word ends that begins at `start`: `start` if no word does.

        Within the last word the end is known, unless a backslash before `start` makes the meaning of the next character.
        """
        if not (self._word[0] <= start < self._word[1] and (start == self._word[0] or self._text[start - 1] != "\\")):
            match = BARE.match(self._text, start)
            self._word = start, match.end() if match else start
        return self._word[1]

    def find_line_end(self, start: int) -> int:
        """Return where the line ends at which a value begins."""
        if not self._line[0] <= start <= self._line[1]:
            end = self._text.find("\n", start)
            self._line = start, len(self._text) if end < 0 else end
        return self._line[1]


def _find_field_end(text: str, before: str, start: int, end: int) -> int:
    """Return where a value ends whose name follows a delimiter: at the same delimiter before another name."""
    delimiter = "&" if before in ("?", "&") else ";" if before == ";" else "," if before in (",", "(", "{", "[") else ""
    match = _FIELDS[delimiter].search(text, start + 1, end) if delimiter else None
    return match.start() if match else end


def _give_back(text: str, name_start: int, start: int, end: int) -> Span | None:
    """Return the range without the brackets, quotes and commas at its end that belong to the text around it."""
    before = text[max(0, name_start - _WINDOW) : name_start]
    outer = {
        last
        for last, opening in _PAIRS.items()
        if opening in before and text.count(opening, start, end) % 2 == (last == opening)
    }  # opened before the value and not in it
    position = end
    while start < position and ((last := text[position - 1]) in outer or last in _PUNCTUATION):
        position -= 1
        if last in outer:
            end = position
            outer -= {_PAIRS[last]}  # of two equal quotes, one opens
    while start < end and text[end - 1] in ",;":
        end -= 1
    return (start, end) if start < end else None
