"""Find the values of secrets in text: a name, a separator, and the value with its quotes or brackets. Pure.

Names and values may have any of the forms that shells, JSON, YAML, Python, HTTP headers, URLs and connection strings use. The
time is linear: a value that is a secret, and a list in brackets, is read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kfjob.redaction.names import Strength, is_credentials, is_secret_name, rate_name, rate_phrase
from kfjob.redaction.values import begins_message, ends_reference, is_harmless, is_secret_value

Span = tuple[int, int]
_NAME = re.compile(r"[\w.-]++", re.ASCII)
_SEPARATOR = re.compile(r"(?P<quote>\\{0,8}[\"'`])?[\])]?[ \t]*+(?:[=:]{1,3}>?|[-=~]>|[→⇒]|[?+|]=)(?P<space>[ \t]*+\n?[ \t]*+)")
_VALUE_FIELD = re.compile(
    r"\\{0,8}[\"'`]?[ \t]*+(?:[,;][ \t]*+)?(?:\n[ \t]*+)?\\{0,8}[\"'`]?value\\{0,8}[\"'`]?[ \t]*+[:=][ \t]*+", re.IGNORECASE
)
"""Between the name of a variable and its value in a list of names and values, as in the manifest of a pod."""
_ARROW = re.compile(r">[ \t]*+")
_GAP = re.compile(r"[ \t]++(?!-)|\\{0,8}[\"'],[ \t]*+(?=\\{0,8}[\"'])")
"""Between an option and its value, also in a list such as `['--token', 'x']`."""
_WORD_BEFORE = re.compile(r"([A-Za-z]{1,20})[ \t]\Z")
_OPENER = re.compile(r"[bBrRuUfF]{0,2}(?P<quote>\\{0,8}(?:\"{3}|'{3}|[\"'`]))")
_QUOTED = {
    "'": re.compile(r"(?:[^'\\\n]|\\[^\n])*+"),
    '"': re.compile(r'(?:[^"\\\n]|\\[^\n])*+'),
    "`": re.compile(r"(?:[^`\\\n]|\\[^\n])*+"),
}
_TRIPLE = ("'" * 3, '"' * 3)
_BARE = re.compile(r"(?:[^\s\\]|\\[^\n])++|\\")
_CHAIN = re.compile(r"[ \t]*+=[ \t]*+(?!=)")
_BLOCK = re.compile(r"[|>][+-]?\d?[ \t]*+\n(?P<lines>(?:[ \t]++[^\n]*+\n?|\n)++)")
_FIELD = re.compile(r"[&;,][ \t]*+[\"']?[\w.%-]++(?: [\w.%-]++)?[\"']?\s?[=:]|[&;,]\Z", re.ASCII)
_PIECE = re.compile(r"[\[({\])}\n]|[bBrRuUfF]{0,2}\\{0,8}[\"'`]|[^\s,;\[\](){}\"'`\\]++")
_KEY = re.compile(r"(?P<name>[\w.-]++)[ \t]*+(?:=>|[:=])(?!/)[ \t]*+", re.ASCII)
_KEY_END = re.compile(r"[ \t]*+(?:=>|[:=])[ \t]*+")
_REFERENCE = re.compile(
    r"\{\s{0,4}[\"']?(?:secret|name|configmap)[\"']?\s?:[^{}\n]{1,120}[,\s][\"']?key[\"']?\s?:[^{}\n]{1,120}\}", re.IGNORECASE
)
"""The name and the key of a Kubernetes secret."""
_OPEN, _CLOSE = "[({", "])}"
_PAIRS = {")": "(", "]": "[", "}": "{", '"': '"', "'": "'", "`": "`", ">": "<"}
_WEAK_VALUE = 256
"""Characters of a value that decide whether it is a secret, if its name has other meanings."""
_SMALL_LIST = 80
"""Characters of a list that are read after `_Reader` has read too many in search of the ends of lists."""
_WINDOW = 200
"""Characters before a name in which a bracket or quote counts as open."""


class _Name(NamedTuple):
    """A name in the text and how much it tells."""

    text: str
    strength: Strength
    start: int
    end: int


def find_assigned(text: str) -> Iterator[Span]:
    """Yield the range of every secret that a name before it shows."""
    reader = _Reader(text)
    position = 0
    while match := _NAME.search(text, position):
        position = match.end()
        strength = rate_name(match[0])
        if strength is Strength.ORDINARY:
            continue
        if match[0].startswith("-") and is_secret_name(match[0]):
            strength = max(strength, Strength.STRONG)  # an option
        elif strength is Strength.WEAK and (before := _WORD_BEFORE.search(text, max(0, match.start() - 21), match.start())):
            strength = max(strength, rate_phrase(before[1], match[0]))
        spans, end = reader.read(_Name(match[0], strength, match.start(), match.end()))
        yield from spans
        position = max(position, end)


class _Reader:
    """Reads the values in one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans_lines = True  # lists in brackets may go on over lines, until one has no end
        self._budget = 1000 + 2 * len(text)  # characters that may be read in search of the ends of lists

    def read(self, name: _Name) -> tuple[list[Span], int]:
        """Return the secrets after a name, and the position up to which the text has been read."""
        text = self._text
        arrow = _ARROW.match(text, name.end) if name.text.endswith("-") else None
        if gap := arrow or _VALUE_FIELD.match(text, name.end):
            return self._read_value(name, gap.end(), has_space=True)
        if separator := _SEPARATOR.match(text, name.end):
            has_space = bool(separator["space"])
            if "\n" in separator["space"] and text[separator.start("space")] != "\n":
                return [], name.end  # trailing spaces: the next line is another topic
            is_field = separator[0] != ": " or name.strength is Strength.LINE or name.text.startswith("-")
            if not is_field and begins_message(name.text, text, separator.end()):
                return [], name.end
            return self._read_value(name, separator.end(), has_space=has_space)
        if name.text.startswith("-") and (gap := _GAP.match(text, name.end)):
            return self._read_option(name, gap.end())
        return [], name.end

    def _read_option(self, name: _Name, start: int) -> tuple[list[Span], int]:
        """Read the word of a shell, or of a list, after an option."""
        span = self.read_word(start) if name.strength >= Strength.STRONG else None
        return ([span], span[1]) if span and not is_harmless(self._text[slice(*span)]) else ([], name.end)

    def read_word(self, start: int) -> Span | None:
        """Return the range of the word of a shell at `start`, without its quotes."""
        if opener := _OPENER.match(self._text, start):
            return self._read_quoted(opener)
        match = _BARE.match(self._text, start)
        return self._give_back(start, start, match.end()) if match else None

    def _read_value(self, name: _Name, start: int, *, has_space: bool) -> tuple[list[Span], int]:
        """Read the value of a name, and the further values of a chain such as `password: str = "x"`."""
        spans, end = self._read_link(name, start, has_space=has_space)
        while spans and (chain := _CHAIN.match(self._text, end)):
            more, next_end = self._read_link(name, chain.end(), has_space=True)
            if not more or next_end <= end:
                break
            spans += more
            end = next_end
        return spans, end

    def _read_link(self, name: _Name, start: int, *, has_space: bool) -> tuple[list[Span], int]:
        text = self._text
        if block := _BLOCK.match(text, start):
            return [block.span("lines")], block.end()
        if opener := _OPENER.match(text, start):
            span = self._read_quoted(opener)
            return self._judge(name, span, opener.end())
        if ends_reference(text, start) or _REFERENCE.match(text, start):
            return [], start
        if text.startswith(tuple(_OPEN), start) and (container := self._read_container(name, start)):
            return container
        span = self._read_bare(name, start, has_space=has_space)
        return self._judge(name, span, name.end)

    def _judge(self, name: _Name, span: Span | None, end: int) -> tuple[list[Span], int]:
        """Return the value if it is a secret; a value that is none is searched for names."""
        if span is None or not is_secret_value(name.text, name.strength, self._text[slice(*span)]):
            return [], end
        if name.strength is Strength.WEAK and span[1] - span[0] >= _WEAK_VALUE and (rest := _BARE.match(self._text, span[1])):
            span = span[0], rest.end()
        return [span], span[1]

    def _read_quoted(self, opener: re.Match[str]) -> Span | None:
        """Return the range between quotes; without a closing quote, the rest of the line."""
        text, quote, start = self._text, opener["quote"], opener.end()
        if len(quote) == 1:
            inner = _QUOTED[quote].match(text, start)
            end = inner.end() if inner else start
            is_closed = text.startswith(quote, end)
        else:
            line_end = len(text) if quote in _TRIPLE else self._find_line_end(start)
            found = text.find(quote, start, line_end)
            end, is_closed = (found, True) if found >= 0 else (self._find_line_end(start), False)
        if is_closed and text[end + len(quote) : end + len(quote) + 1] in tuple("\"'"):  # the shell joins adjacent quotes
            joined = _BARE.match(text, end + len(quote))
            if joined and len(joined[0]) > 1 and joined[0][1] not in ",;)]}":
                return start, joined.end()
        if is_closed and (word := _NAME.match(text, end + len(quote))) and start < end:
            return start, word.end()
        return (start, end) if start < end else None

    def _read_bare(self, name: _Name, start: int, *, has_space: bool) -> Span | None:
        """Return the range of a value without quotes: to the next space, or to the end of what encloses the name."""
        text = self._text
        before = text[max(0, name.start - _WINDOW) : name.start]
        before = before.rpartition("\n")[2]
        quote = before[-1:] if before[-1:] in ("'", '"', "`") else ""
        if quote and (end := text.find(quote, start, self._find_line_end(start))) > start:
            is_whole = name.strength is Strength.LINE or (name.strength > Strength.WEAK and not has_space)
            match = None if is_whole else _BARE.match(text, start, end)
            return start, match.end() if match else end
        if name.strength is Strength.LINE:
            end = self._find_line_end(start)
            return (start, end) if text[start:end].strip() else None
        match = _BARE.match(text, start, start + _WEAK_VALUE if name.strength is Strength.WEAK else len(text))
        if match is None:
            return None
        end = match.end()
        for mark in ('"', "`"):
            if before.count(mark) % 2 and (closing := text.find(mark, start, end)) > start:
                end = closing
        return self._give_back(name.start, start, self._find_field_end(before[-1:], start, end))

    def _find_field_end(self, before: str, start: int, end: int) -> int:
        """Return where a value ends whose name follows a delimiter: at the same delimiter before another name."""
        delimiter = "&" if before in ("?", "&") else ";" if before == ";" else "," if before in (",", "(", "{", "[") else ""
        if not delimiter:
            return end
        for match in _FIELD.finditer(self._text, start + 1, end):
            if match[0][0] == delimiter:
                return match.start()
        return end

    def _give_back(self, name_start: int, start: int, end: int) -> Span | None:
        """Return the range without the brackets, quotes and commas at its end that belong to the text around it."""
        text = self._text
        before = text[max(0, name_start - _WINDOW) : name_start]
        while start < end:
            last = text[end - 1]
            opening = _PAIRS.get(last, "")
            is_outer = opening and opening in before and text.count(opening, start, end) % 2 == (last == opening)
            if not is_outer and last not in ",;":
                break
            end -= 1
        return (start, end) if start < end else None

    def _find_line_end(self, start: int) -> int:
        end = self._text.find("\n", start)
        return len(self._text) if end < 0 else end

    def _read_container(self, name: _Name, start: int) -> tuple[list[Span], int] | None:
        """Return the secrets in a list or an object; None if a password merely begins with a bracket."""
        end = self._find_container_end(start)
        is_closed = end is not None
        if end is None:
            self._spans_lines, end = False, self._find_line_end(start)
        following = self._text[end : end + 1] if is_closed else ""
        inner = self._text[start + 1 : start + 2]
        if (following.isalnum() or following in tuple("_$!#@%^*+/")) or not (is_closed or inner.isspace() or inner in "\"'[({"):
            return None
        if is_credentials(name.text):
            name = name._replace(strength=max(name.strength, Strength.NAMED))
        return list(_Leaves(self._text, name, self).read(start, end)), end

    def _find_container_end(self, start: int) -> int | None:
        depth, position = 0, start
        limit = len(self._text) if self._spans_lines else self._find_line_end(start)
        limit = min(limit, start + max(self._budget, _SMALL_LIST))
        while match := _PIECE.search(self._text, position, limit):
            position = match.end()
            last = match[0][-1]
            if last in _OPEN:
                depth += 1
            elif last in _CLOSE:
                depth -= 1
                if depth == 0:
                    self._budget -= position - start
                    return position
            elif last in "\"'`" and (opener := _OPENER.match(self._text, match.start())):
                span = self._read_quoted(opener)
                position = max(position, span[1] if span else position)
                position += len(opener["quote"]) if self._text.startswith(opener["quote"], position) else 0
        self._budget -= limit - start
        return None


class _Leaves:
    """Reads the values in a list or an object under a name; names in it may tell more than the one of the whole."""

    def __init__(self, text: str, name: _Name, reader: _Reader) -> None:
        self._text, self._reader = text, reader
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
            if is_secret_value(self._current.text, self._current.strength, self._text[slice(*span)]):
                yield span
            self._expect(self._names[-1])

    def _expect(self, name: _Name, *, has_key: bool = False) -> None:
        self._current, self._has_key = name, has_key

    def _read_piece(self, match: re.Match[str]) -> tuple[Span | None, int]:
        """Return the range of a key or a value, if the piece begins one, and the position after the piece."""
        text, position, last = self._text, match.end(), match[0][-1]
        if match[0] in tuple(_OPEN):
            self._names.append(self._current)
        elif match[0] in tuple(_CLOSE):
            self._names = self._names[:-1] or [self._current]
            self._expect(self._names[-1])
        elif last in "\"'`" and (opener := _OPENER.match(text, match.start())):
            span = self._reader.read_word(match.start())
            position = max(position, span[1] if span else position)
            return span, position + (len(opener["quote"]) if text.startswith(opener["quote"], position) else 0)
        elif not self._has_key and (key := _KEY.match(text, match.start())):
            self._expect(_choose_name(key["name"], self._names[-1]), has_key=True)
            return None, key.end()
        elif match[0] != "\n":
            return match.span(), position
        return None, position


def _choose_name(key: str, outer: _Name) -> _Name:
    strength = rate_name(key)
    return _Name(key, strength, 0, 0) if strength > outer.strength else outer
