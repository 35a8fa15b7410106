"""Find where the value of a secret in text begins and ends: words of shells, quotes, and what encloses a name. Pure."""

from __future__ import annotations

import re

from kfjob.redaction.connectors import SecretName
from kfjob.redaction.names import Strength

Span = tuple[int, int]
NAME = re.compile(r"[\w.-]++", re.ASCII)
OPENER = re.compile(r"[bBrRuUfF]{0,2}(?P<quote>\\{0,8}(?:\"{3}|'{3}|[\"'`]))")
_QUOTED = {
    "'": re.compile(r"(?:[^'\\\n]|\\[^\n])*+"),
    '"': re.compile(r'(?:[^"\\\n]|\\[^\n])*+'),
    "`": re.compile(r"(?:[^`\\\n]|\\[^\n])*+"),
}
_TRIPLE = ("'" * 3, '"' * 3)
BARE = re.compile(r"(?:[^\s\\]|\\[^\n])++|\\")
_FIELD = re.compile(r"[&;,][ \t]*+[\"']?[\w.%-]++(?: [\w.%-]++)?[\"']?\s?[=:]|[&;,]\Z", re.ASCII)
_PAIRS = {")": "(", "]": "[", "}": "{", '"': '"', "'": "'", "`": "`", ">": "<"}
_PUNCTUATION = ":.!?,;"
"""Marks of a sentence after a quoted command."""
WEAK_VALUE = 256
"""Characters of a value that decide whether it is a secret, if its name has other meanings."""
_WINDOW = 200
"""Characters before a name in which a bracket or quote counts as open."""


def read_word(text: str, start: int) -> Span | None:
    """Return the range of the word of a shell at `start`, without its quotes."""
    if opener := OPENER.match(text, start):
        return read_quoted(text, opener)
    match = BARE.match(text, start)
    return _give_back(text, start, start, match.end()) if match else None


def read_quoted(text: str, opener: re.Match[str]) -> Span | None:
    """Return the range between quotes; without a closing quote, the rest of the line."""
    quote, start = opener["quote"], opener.end()
    if len(quote) == 1:
        inner = _QUOTED[quote].match(text, start)
        end = inner.end() if inner else start
        is_closed = text.startswith(quote, end)
    else:
        line_end = len(text) if quote in _TRIPLE else find_line_end(text, start)
        found = text.find(quote, start, line_end)
        end, is_closed = (found, True) if found >= 0 else (find_line_end(text, start), False)
    if is_closed and text[end + len(quote) : end + len(quote) + 1] in tuple("\"'"):  # the shell joins adjacent quotes
        joined = BARE.match(text, end + len(quote))
        if joined and len(joined[0]) > 1 and joined[0][1] not in ",;)]}":
            return start, joined.end()
    if is_closed and (word := NAME.match(text, end + len(quote))) and start < end:
        return start, word.end()
    return (start, end) if start < end else None


def read_bare(text: str, name: SecretName, start: int, *, has_space: bool) -> Span | None:
    """Return the range of a value without quotes: to the next space, or to the end of what encloses the name."""
    before = text[max(0, name.start - _WINDOW) : name.start]
    before = before.rpartition("\n")[2]
    quote = before[-1:] if before[-1:] in ("'", '"', "`") else ""
    if quote and (end := text.find(quote, start, find_line_end(text, start))) > start:
        is_whole = name.strength is Strength.LINE or (name.strength > Strength.WEAK and not has_space)
        match = None if is_whole else BARE.match(text, start, end)
        return start, match.end() if match else end
    if name.strength is Strength.LINE:
        end = find_line_end(text, start)
        return (start, end) if text[start:end].strip() else None
    match = BARE.match(text, start, start + WEAK_VALUE if name.strength is Strength.WEAK else len(text))
    if match is None:
        return None
    end = match.end()
    for mark in ('"', "`"):
        if before.count(mark) % 2 and (closing := text.find(mark, start, end)) > start:
            end = closing
    return _give_back(text, name.start, start, _find_field_end(text, before[-1:], start, end))


def _find_field_end(text: str, before: str, start: int, end: int) -> int:
    """Return where a value ends whose name follows a delimiter: at the same delimiter before another name."""
    delimiter = "&" if before in ("?", "&") else ";" if before == ";" else "," if before in (",", "(", "{", "[") else ""
    if not delimiter:
        return end
    for match in _FIELD.finditer(text, start + 1, end):
        if match[0][0] == delimiter:
            return match.start()
    return end


def _give_back(text: str, name_start: int, start: int, end: int) -> Span | None:
    """Return the range without the brackets, quotes and commas at its end that belong to the text around it."""
    before = text[max(0, name_start - _WINDOW) : name_start]
    while start < end:
        quoted = start + len(text[start:end].rstrip(_PUNCTUATION))
        if _is_outer(text, before, start, quoted):
            end = quoted - 1
        elif text[end - 1] in ",;":
            end -= 1
        else:
            break
    return (start, end) if start < end else None


def find_line_end(text: str, start: int) -> int:
    """Return where the line ends at which a value begins."""
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _is_outer(text: str, before: str, start: int, end: int) -> bool:
    """Return whether a part of a text ends with a bracket or a quote that was opened before it."""
    last = text[end - 1] if start < end else ""
    opening = _PAIRS.get(last, "")
    return bool(opening) and opening in before and text.count(opening, start, end) % 2 == (last == opening)
