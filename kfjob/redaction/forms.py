r"""The forms in which a text can be read: without what a terminal does not show, and with escapes decoded. Pure.

`DB_PASS\u200bWORD=x` shows a name that a search in the text does not find. A secret that any form shows is a secret.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from html import unescape
from typing import NamedTuple

from kfjob.base.printable import NARROW_SEQUENCE, SEQUENCE
from kfjob.redaction import languages

_UNUSUAL = r"[^\n\t -~]"
_ESCAPE = (
    r"\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\033|\\e(?=\[)|%[0-7][0-9A-Fa-f]"
    r"|&(?:quot|apos|lt|gt|amp|#\d{2,5}|#[xX][0-9A-Fa-f]{2,4});"
)
"""Characters as JSON, programs, URLs and HTML write them."""
_HAS_UNUSUAL, _HAS_ESCAPE = re.compile(_UNUSUAL), re.compile(_ESCAPE)
_HAS_SEQUENCE = re.compile(r"[\x1b\x90\x9b\x9d-\x9f]")
_SEQUENCE_TOKENS = tuple(re.compile(rf"{sequence}|{_UNUSUAL}") for sequence in (SEQUENCE.pattern, NARROW_SEQUENCE.pattern))
_CHARACTERS = re.compile(_UNUSUAL)
_ESCAPES = re.compile(rf"{_ESCAPE}|{_UNUSUAL}")
_LITERAL = re.compile(
    rf"(?:\\x1[bB]|\\u001[bB]|\\033|\\e)\[[0-9;:?]{{0,40}}[ -/]{{0,8}}[@-~]?|{SEQUENCE.pattern}|{_ESCAPE}|{_UNUSUAL}"
)
"""As `_ESCAPES`, with whole sequences."""
_SPACES = "\r\x0b\x0c\x85\u2028\u2029"
_FILLERS = "\u115f\u1160\u3164\uffa0\u2800\ufffd"
"""Blank letters, and the mark of a byte that is no text."""
_INVISIBLE = frozenset(["Cc", "Cf", "Cs", "Cn", "Co"])
_REPLACEMENTS = {"Zs": " ", "Zl": " ", "Zp": " ", "Pd": "-"} | dict.fromkeys("\u2018\u2019\u201b", "'")
_REPLACEMENTS |= dict.fromkeys("\u201c\u201d\u201f", '"')
"""ASCII for categories and characters that have no decomposition."""
_ACCENTS = frozenset(["Mn", "Me"])


class Form(NamedTuple):
    """A text in one form, and where its parts stand in the original."""

    text: str
    starts: tuple[int, ...] = (0,)
    """Positions in the form at which a part begins. The parts alternate: copied text, and what stands for other characters."""
    originals: tuple[tuple[int, int, bool], ...] = ()
    """For each part: its start and end in the original, and whether it is a copy."""
    boundaries: tuple[int, ...] = ()
    """Positions in the form at which something invisible was left out."""
    source: Form | None = None
    """The form from which this one was derived; None for the original."""

    def locate(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of the original for a range of the form."""
        if self.originals:
            start, end = self._locate_here(start, end)
        return self.source.locate(start, end) if self.source else (start, end)

    def _locate_here(self, start: int, end: int) -> tuple[int, int]:
        first, last = bisect_right(self.starts, start) - 1, bisect_right(self.starts, end - 1) - 1
        left, _, copied_left = self.originals[first]
        begin, right, copied_right = self.originals[last]
        left += start - self.starts[first] if copied_left else 0
        return left, begin + end - self.starts[last] if copied_right else right


def list_forms(text: str) -> Iterator[Form]:
    """Yield the forms of a text: itself, what is left without invisible characters, and each with its names in English."""
    for form in _list_readings(text):
        yield form
        if names := languages.find_names(form.text):
            yield _replace(form.text, names)._replace(source=form)


def _list_readings(text: str) -> Iterator[Form]:
    yield Form(text)
    if _HAS_UNUSUAL.search(text):
        for tokens in (*_SEQUENCE_TOKENS, _CHARACTERS) if _HAS_SEQUENCE.search(text) else (_CHARACTERS,):
            yield from _list_gaps(text, tokens, _fold)
    if _HAS_ESCAPE.search(text):
        for tokens in (_ESCAPES, _LITERAL):
            yield from _list_gaps(text, tokens, _decode)


def _list_gaps(text: str, tokens: re.Pattern[str], replace: Callable[[str, str], str]) -> Iterator[Form]:
    """Yield the form without the tokens that are invisible, and, if there are any, the one with a space for each."""
    form = _convert(text, tokens, lambda part: replace(part, ""))
    if form.text != text:
        yield form
    if form.boundaries:
        yield _convert(text, tokens, lambda part: replace(part, " "))


def fold_text(text: str) -> str:
    """Return a text without invisible characters and accents, in ASCII where that is possible."""
    return _convert(text, _SEQUENCE_TOKENS[0], lambda part: _fold(part, "")).text if _HAS_UNUSUAL.search(text) else text


def _convert(text: str, tokens: re.Pattern[str], replace: Callable[[str], str]) -> Form:
    return _replace(text, ((*match.span(), replace(match[0])) for match in tokens.finditer(text)))


def _replace(text: str, parts: Iterable[tuple[int, int, str]]) -> Form:
    """Return the form in which each part, a range and its replacement, stands for the text in this range."""
    pieces: list[str] = []
    starts: list[int] = []
    originals: list[tuple[int, int, bool]] = []
    boundaries: list[int] = []
    length = position = 0

    def add(piece: str, start: int, end: int, *, is_copy: bool) -> None:
        nonlocal length
        if piece:
            pieces.append(piece)
            starts.append(length)
            originals.append((start, end, is_copy))
            length += len(piece)

    for start, end, piece in parts:
        add(text[position:start], position, start, is_copy=True)
        if not piece and (not boundaries or boundaries[-1] != length):
            boundaries.append(length)
        add(piece, start, end, is_copy=False)
        position = end
    add(text[position:], position, len(text), is_copy=True)
    return Form("".join(pieces), tuple(starts) or (0,), tuple(originals), tuple(boundaries))


def _decode(part: str, gap: str) -> str:
    """Return what an escape stands for."""
    if part[0] == "%":
        character = chr(int(part[1:], 16))
    elif part[0] == "&" and len(part) > 1:
        character = unescape(part)
    elif part[0] != "\\":
        return _fold(part, gap)
    elif len(part) > 1 and part[1] in "xu" and _HAS_ESCAPE.fullmatch(part):
        character = chr(int(f"0x{part[2:]}", 0))
    else:
        return gap
    if len(character) > 1:
        return gap  # a number that is no character
    return character if " " <= character <= "~" else _fold(character, gap)


def _fold(part: str, gap: str) -> str:
    """Return the ASCII letters that a character looks like; `gap` for what is invisible."""
    return _fold_character(part, gap) if len(part) == 1 else gap


@lru_cache(maxsize=4096)
def _fold_character(character: str, gap: str) -> str:
    category = unicodedata.category(character)
    if character in _SPACES or character in _FILLERS or category in _INVISIBLE:
        return gap
    if replacement := _REPLACEMENTS.get(category) or _REPLACEMENTS.get(character):
        return replacement
    parts = unicodedata.normalize("NFKD", character)
    return "".join(part for part in parts if unicodedata.category(part) not in _ACCENTS | _INVISIBLE)
