"""The tokens of a line: words, numbers and punctuation, and the cursor that reads them.

Dates, clocks, addresses and versions have no value. The cursor also reads what belongs to a number: its total, its unit, a
second number. A number is known by its place, so that lines that differ only in their digits are read once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from kfjob.base.units import COUNT_SUFFIXES
from kfjob.joblog.lines.line_text import mask_digits
from kfjob.joblog.lines.meanings import Quantity, find_meaning, is_other_rate, parse_unit, seconds_in, split_name
from kfjob.joblog.lines.vocabulary import COUNT_UNITS, MEASURES, UNITS

MAX_LENGTH = 4096
"""Characters of a line that may be progress; a longer line is a dump."""

_MAX_TOKENS_OF_SPEED = 12
"""Tokens after a number in which the name of a speed is searched."""

_TOKEN = re.compile(
    r"(?P<space>[ \t\u00a0]++)"
    r"|(?P<junk>"
    r"\d{4}[-/]\d\d?[-/]\d\d?(?>(?:[T ,_-]{1,2}\d\d?:\d\d(?::\d\d)?(?:[.,]\d++)?Z?)?)(?!\d)"  # 2026-02-03 04:05:06,211
    r"|\d\d?[-/]\d\d?[-/]\d{2,4}(?!\d)"  # 02/03/2026
    r"|\d\d[-/]\d\d (?=\d\d:\d\d)"  # 02/03 04:05:06
    r"|\d++:\d\d(?::\d\d)*+(?:[.,]\d++)?(?!\d)"  # 0:11:11, 01:06<00:19
    r"|v?\d++(?>(?:\.\d++){2,})(?::\d++)?"  # 10.0.0.17:29500, 1.2.3
    r"|0[xX][0-9a-fA-F]++"
    r")"
    r"|(?P<decimal>(?:(?<=[:=])|(?<=[:=\w\]\)] ))[-+]?(?:0,\d++|\d++,(?:\d{4,}+|\d{1,2}+))(?![\d,.])"  # 0,1402
    r"(?:[eE][-+]?\d++)?)"
    r"|(?P<number>[-+](?i:nan|infinity|inf)(?!\w)|[-+]?(?:\d{1,3}(?>(?:,\d{3})+)(?!\d)(?:\.\d*+)?|\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?)"
    r"|(?P<word>[\u4e00-\u9fff]++|[^\W\d_][\w]*+(?>(?:(?:[/.@-](?=[^\W\d])|[@](?=\d))\w++)*)|_\w++|#(?!\w))"
    r"|(?P<mark>.)",
    re.DOTALL,
)
_ONE_GROUP = re.compile(r"[-+]?\d{1,3},\d{3}")
_FIXED_DIGITS = re.compile(r"(?<![^\W\d])[^\W\d]++@?\d[\w@]*+|(?<!\d)0(?=[xX])|(?<![\d.,])0(?=,)|(?<=\d)[eE][-+]\d{4,}+")
"""It matches digits that decide what a line says: those of a word, a zero before `x` or a comma, and a long exponent."""
_FULL_WIDTH = str.maketrans("：，；（）［］｛｝／＝％｜、。│┃║→⇒", ":,;()[]{}/=%|,.|||>>")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}


class Token(NamedTuple):
    """One token with its position in the line."""

    kind: str  # space | junk | number | word | mark
    text: str
    start: int
    end: int
    has_decimal_comma: bool = False  # the text has a point in its place


class Number(NamedTuple):
    """Where a number stands in a line, and how it is written."""

    start: int
    end: int
    factor: float = 1.0  # of its suffix, as in `12.5K`
    has_decimal_comma: bool = False

    def read(self, text: str) -> float:
        """Return the value that the number has in this line.

        Raises:
            OverflowError: it is too large, such as `1e999`.
        """
        digits = text[self.start : self.end]
        value = parse_figure(digits.replace(",", ".") if self.has_decimal_comma else digits)
        if value is None:
            raise OverflowError(digits)
        return value * self.factor


def fold_width(text: str) -> str:
    """Return the line's beginning with the marks of ASCII in place of those that fill the width of two characters."""
    text = text[:MAX_LENGTH]
    return text if text.isascii() else text.translate(_FULL_WIDTH)


def hide_numbers(text: str) -> str:
    """Return the line with ones in place of the digits of its numbers: lines that differ only in their numbers become equal."""
    masked = mask_digits(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")
    for match in _FIXED_DIGITS.finditer(text):
        masked = f"{masked[: match.start()]}{match[0]}{masked[match.end() :]}"
    return masked


def split_tokens(text: str) -> list[Token]:
    """Return the tokens of a line. The time is linear in the length."""
    return list(_iterate_tokens(text))


def _iterate_tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup or "mark", match.group()
        if kind == "decimal":
            yield Token("number", token.replace(",", "."), match.start(), match.end(), has_decimal_comma=True)
            continue
        if kind == "word" and token.lower() in _NOT_FINITE:
            kind = "number"
        yield Token(kind, token, match.start(), match.end())


def parse_figure(text: str) -> float | None:
    """Return the number; None if it is too large for one, such as `1e999`."""
    special = _NOT_FINITE.get(text.lstrip("+-").lower())
    if special is not None:
        return -special if text.startswith("-") else special
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


def find_number(token: Token) -> Number | None:
    """Return the number of a token; None if it is too large for one, such as `1e999`."""
    if parse_figure(token.text) is None:
        return None
    return Number(token.start, token.end, has_decimal_comma=token.has_decimal_comma)


def may_be_decimal(text: str) -> bool:
    """Return whether a number such as `2,345` may have a decimal comma."""
    return _ONE_GROUP.fullmatch(text) is not None


def is_whole(text: str) -> bool:
    """Return whether the number is printed as an integer."""
    return text.lstrip("+-").replace(",", "").isdigit()


class Cursor(Struct):
    """A position in the tokens of a line."""

    tokens: list[Token]
    position: int = 0

    @property
    def at_end(self) -> bool:
        """Whether no token remains."""
        return self.position >= len(self.tokens)

    def take(self) -> Token:
        """Return the next token, and move behind it."""
        token = self.tokens[self.position]
        self.position += 1
        return token

    def peek(self, count: int = 1) -> list[Token]:
        """Return the next tokens; fewer at the end of the line."""
        return self.tokens[self.position : self.position + count]

    def next_is(self, text: str) -> bool:
        """Return whether the next token has this text."""
        return not self.at_end and self.tokens[self.position].text == text

    def next_is_word(self) -> bool:
        """Return whether the next token is a word."""
        return not self.at_end and self.tokens[self.position].kind == "word"

    def closes(self) -> bool:
        """Return whether a bracket ends within two tokens."""
        return any(token.text in "])" for token in self.peek(2) if token.kind == "mark")

    def separates(self) -> bool:
        """Return whether the number before stands alone at the beginning of a line: `10 | loss 2.3`."""
        if self.at_end:
            return False
        after = self._skip_spaces(self.position)
        if self.tokens[self.position].text in {":", ",", "\t"}:
            return True
        if after >= len(self.tokens):
            return False
        mark = self.tokens[after].text
        return mark in {"|", ";", ":", "["} or (mark in {"-", ">"} and self.tokens[after - 1].kind == "space")

    def take_second(self, token: Token) -> Number | None:
        """Return the second number of `[1, 100]`; `token` is the first one."""
        rest = [item for item in self.peek(6) if item.kind != "space"]
        closes = len(rest) > 2 and rest[2].text in {"]", ")"}  # noqa: PLR2004 - `, 100 ]`
        if not closes or rest[0].text != "," or rest[1].kind != "number":
            return None
        if not is_whole(rest[1].text) or not is_whole(token.text):
            return None
        while self.tokens[self.position].text not in {"]", ")"}:
            self.position += 1
        return find_number(rest[1])

    def take_total(self, *, named: bool) -> Number | None:
        """Return the number after `/` or `of`. `named`: the counter has a name before it."""
        place = self._skip_spaces(self.position)
        if place >= len(self.tokens):
            return None
        if self.tokens[place].text in {"of", "из", "/"}:
            place = self._skip_spaces(place + 1)
        else:
            return None
        if place >= len(self.tokens) or self.tokens[place].kind != "number":
            return None
        self.position = place + 1
        number = find_number(self.tokens[place])
        factor, unit = self.take_unit(named=named)
        return number._replace(factor=factor) if number is not None and unit is not None else None

    def take_unit(self, *, named: bool, is_rate: bool = False) -> tuple[float, str | None]:
        """Return the multiplier and the unit after a number; None for a part of a word, such as `3f2a`.

        `named`: the number has a name before it; `is_rate`: that name is the name of a speed.
        """
        rest = self.peek(4)
        if not rest:
            return 1.0, ""
        adjacent = rest[0]
        if adjacent.kind == "word" and adjacent.text.isascii():
            self.position += 1
            multiplier, unit = _parse_suffix(adjacent.text)
            return (multiplier, self._take_rate(named=named and not is_rate) or "") if unit == "" else (multiplier, unit)
        if adjacent.text == "%" or (adjacent.kind == "space" and len(rest) > 1 and rest[1].text == "%"):
            self.position += 1 if adjacent.text == "%" else 2
            return 1.0, "%"
        if adjacent.text == "/" and len(rest) > 1 and rest[1].kind == "word" and seconds_in(rest[1].text.partition("/")[0]):
            self.position += 2
            return 1.0, f"samples/{rest[1].text}"
        if adjacent.kind == "space" and len(rest) > 1 and rest[1].kind == "word":
            return self._take_spaced_unit(rest, named=named, is_rate=is_rate)
        return 1.0, ""

    def _is_next_name(self) -> bool:
        """Return whether the word after the number names the next number: `loss 2.3 tok/s 3267`, `epoch: 3 fps total: 790`."""
        if self._begins_speed():
            return True
        place = self.position
        while [token.kind for token in self.tokens[place : place + 4]] == ["space", "word", "space", "number"]:
            place += 4
        unit = self.tokens[after].text if (after := self._skip_spaces(place)) < len(self.tokens) else ""
        return place > self.position and not (_is_measure(unit) or unit in {"%", "/"})

    def _begins_speed(self) -> bool:
        """Return whether several words before a `:` or `=` name a speed."""
        rest = self.peek(_MAX_TOKENS_OF_SPEED)
        end = next((place for place, token in enumerate(rest) if token.kind not in {"space", "word"}), 0)
        words = [word for token in rest[:end] for word in split_name(token.text)]
        meaning = find_meaning(tuple(words)) if words[1:] and rest[end].text in {":", "="} else None
        return meaning is not None and meaning.quantity is Quantity.SPEED

    def _skip_spaces(self, place: int) -> int:
        while place < len(self.tokens) and self.tokens[place].kind == "space":
            place += 1
        return place

    def _take_rate(self, *, named: bool) -> str | None:
        """Return the unit in `12.5K tok/s`, after the suffix."""
        rest = self.peek(3)
        kinds = [token.kind for token in rest]
        if kinds[:2] != ["space", "word"] or not parse_unit(rest[1].text) or rest[-1].text in {":", "="}:
            return None
        if named and self._is_next_name():
            return None
        self.position += 2
        return rest[1].text

    def _take_spaced_unit(self, rest: list[Token], *, named: bool, is_rate: bool) -> tuple[float, str]:
        """Return the unit in `12.3 samples/s`, `1.0 s / it` or `38.3 K`."""
        if named and not is_rate and self._is_next_name():
            return 1.0, ""
        word, after = rest[1].text, "".join(token.text for token in rest[2:])
        parts = self.tokens[self.position + 2 : self.position + 6]
        if [token.kind for token in parts] == ["space", "mark", "space", "word"] and parts[1].text == "/":
            self.position += 6
            return 1.0, f"{word}/{parts[3].text}"
        if after.lstrip().startswith((":", "=")) and not self._starts_name(self.position + 2):
            return 1.0, ""  # a name
        multiplier, unit = (COUNT_SUFFIXES[word.lower()], "") if word in {"K", "M"} else (1.0, word)
        if (
            unit
            and [token.kind for token in parts[:2]] == ["space", "word"]
            and self._ends_rate(parts[1].text, self.position + 4)
        ):
            self.position += 4
            return 1.0, parts[1].text  # `812 env steps/s`
        is_name = word.lower() in COUNT_UNITS and named
        if unit and (is_name or not _is_measure(word)):
            return 1.0, ""
        self.position += 2
        return multiplier, unit

    def _starts_name(self, place: int) -> bool:
        """Return whether a separator stands here, as after the unit in `81 words/s : norm 1.2`, and not the mark of a value."""
        parts = self.tokens[place : place + 4]
        return [token.kind for token in parts] == ["space", "mark", "space", "word"]

    def _ends_rate(self, word: str, after: int) -> bool:
        """Return whether the word is a unit, and not the name of a number after it."""
        place = self._skip_spaces(after)
        is_name = place < len(self.tokens) and (self.tokens[place].kind == "number" or self.tokens[place].text in {":", "="})
        return parse_unit(word) is not None and not is_name


def _is_measure(word: str) -> bool:
    """Return whether the word is a unit that may stand after a number and a space."""
    return bool(parse_unit(word) or seconds_in(word) or is_other_rate(word) or word.lower() in MEASURES | COUNT_UNITS)


def _parse_suffix(text: str) -> tuple[float, str | None]:
    lower = text.lower()
    if len(text) == 1 and lower in COUNT_SUFFIXES:
        return COUNT_SUFFIXES[lower], ""
    if lower in UNITS:
        return 1.0, lower
    if parse_unit(text) or ("/" in lower and lower.split("/", maxsplit=1)[0] in UNITS):
        return 1.0, lower
    if lower[0] in COUNT_SUFFIXES and (parse_unit(text[1:]) or lower[1:] in COUNT_UNITS):  # `1.04kit/20.0kit`
        return COUNT_SUFFIXES[lower[0]], text[1:]
    return 1.0, None
