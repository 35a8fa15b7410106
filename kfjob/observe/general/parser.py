"""The parser reads the numbers of one line, with their names, from left to right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kfjob.observe.general.tokens import Token, is_whole, parse_figure
from kfjob.observe.general.vocabulary import (
    ANY_LOSS,
    CLEAR_COUNT,
    FILLERS,
    Role,
    find_meaning,
    find_phase,
    is_count,
    parse_unit,
    seconds_in,
    split_name,
)

MAX_FIGURES = 128
"""Named values of one line."""
MAX_NAME = 8
"""Words of the name of a value."""
_MAX_NAME_AFTER = 3
"""Words of a name that stands after its value."""
_SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_WRAPPERS = frozenset({"tensor", "array", "devicearray", "float", "float32", "float64", "int", "int64", "decimal", "scalar"})
_PLAIN_UNITS = frozenset((
    "it", "its", "step", "steps", "epoch", "epochs", "samples", "tokens", "tok", "kimg", "batch", "batches", "iterations",
))  # fmt: skip
_UNITS = frozenset((
    "s", "sec", "secs", "ms", "us", "ns", "min", "mins", "h", "hr", "hrs", "d", "x", "gb", "mb", "kb", "gib", "mib", "tb", "w",
    "tflops", "px", "it", "its",
))  # fmt: skip


class NamedFigure(NamedTuple):
    """A number with its name."""

    words: tuple[str, ...]
    value: float
    whole: bool
    total: float | None
    unit: str
    free: int  # words without a figure before it


@dataclass(slots=True)
class Parser:
    """Reads one line from left to right: `run` fills `named`, `slots`, `free` and `percent`."""

    tokens: list[Token]
    words: list[str] = field(default_factory=list)  # since the last number or separator
    free: list[str] = field(default_factory=list)
    parents: list[list[str]] = field(default_factory=list)
    named: list[NamedFigure] = field(default_factory=list)
    slots: list[tuple[float, float | None]] = field(default_factory=list)  # counters without a name
    gap: str = "^"  # punctuation since the last number
    depth: int = 0
    last_words: tuple[str, ...] = ()
    percent: float | None = None
    index: int | None = None  # the number before a colon at the beginning: a counter, or the rank, as srun prints it
    position: int = 0

    def run(self) -> None:
        """Read the line."""
        while self.position < len(self.tokens) and len(self.named) < MAX_FIGURES:
            token = self.tokens[self.position]
            self.position += 1
            if token.kind == "word":
                self._take_word(token)
            elif token.kind == "number":
                self._take_number(token)
            elif token.kind == "junk":
                self.words.clear()
                self.gap, self.last_words = ",", ()
            elif token.kind == "mark":
                self._take_mark(token.text)
            else:
                self._take_space(token)
        self.free += self.words

    def _take_space(self, token: Token) -> None:
        self.gap += " "
        if (len(token.text) > 1 or "\t" in token.text) and self.words and self._next_is_word():
            self.free += self.words
            self.words.clear()

    def _next_is_word(self) -> bool:
        return self.position < len(self.tokens) and self.tokens[self.position].kind == "word"

    def _take_word(self, token: Token) -> None:
        if self._wraps_value(token):
            self.gap = ":"
            return
        if ":" in self.gap or "=" in self.gap:
            self.free += self.words
            self.words.clear()
        name, digits = _split_digits(token.text)
        self.words += split_name(name)
        self.gap = ""
        if digits:
            self._add_named(tuple(self.words), float(digits), whole=True, total=self._take_total(), unit="")

    def _wraps_value(self, token: Token) -> bool:
        """Return whether the word is a type around a value, as in `tensor(2.3, device='cuda:0')`."""
        name = token.text.lower().rpartition(".")[2]
        opens = self.position < len(self.tokens) and self.tokens[self.position].text == "("
        return opens and bool(self.words) and (name in _WRAPPERS or token.text.startswith("np."))

    def _take_mark(self, mark: str) -> None:
        if mark in "([":
            self.depth += 1
        elif mark in ")]":
            self.depth = max(self.depth - 1, 0)
        elif mark == "{":
            self.parents.append(list(self.words) if self.words and (":" in self.gap or "=" in self.gap) else [])
            self.words.clear()
        elif mark == "}" and self.parents:
            self.parents.pop()
        if mark in ",;|{}&?" or (mark in "-•·" and self.gap.endswith(" ")):
            self.free += self.words
            self.words.clear()
            self.last_words = () if mark != "," else self.last_words
        if mark not in "'\"`*":
            self.gap += mark

    def _take_number(self, token: Token) -> None:
        ends_range = self._ends_range(token)
        value, whole = parse_figure(token.text), is_whole(token.text)
        multiplier, unit = self._take_unit()
        if value is None or unit is None:
            self.words.clear()
            self.gap, self.last_words = ",", ()
            return
        value *= multiplier
        whole = whole or (multiplier > 1 and value.is_integer())
        if ends_range:
            words = split_name(unit) if is_count(split_name(unit)) else self.named[-1].words  # `51-60batch`
            self.named[-1] = self.named[-1]._replace(words=words, value=-value, unit="")
            return
        opened = self.gap.rstrip().endswith(("[", "("))
        second = self._take_second(token) if whole and opened else None
        total = None if second is not None else self._take_total()
        gap, self.gap = self.gap, "0"
        if self.words:
            words, self.words = tuple(self.words[-MAX_NAME:]), []
            if second is not None:
                self._add_pair(words, value, second)
            else:
                self._add_named(words, value, whole=whole, total=total, unit=unit)
        elif second is not None:
            self._add_pair((), value, second)
        else:
            self._add_unnamed(gap, value, whole=whole, total=total, unit=unit)

    def _ends_range(self, token: Token) -> bool:
        """Return whether the number ends `[0-50]`."""
        before = self.tokens[self.position - 2] if self.position > 1 else None
        return (
            token.text.startswith("-")
            and before is not None
            and before.kind == "number"
            and bool(self.named)
            and not self.words
        )

    def _add_named(self, words: tuple[str, ...], value: float, *, whole: bool, total: float | None, unit: str) -> None:
        parents = tuple(word for parent in self.parents for word in parent if find_phase((word,)))
        self._append(parents + words, value, whole=whole, total=total, unit=unit)
        self.last_words = words
        self.words = []
        self.gap = "0"

    def _append(self, words: tuple[str, ...], value: float, *, whole: bool, total: float | None = None, unit: str = "") -> None:
        self.named.append(NamedFigure(words, value, whole, total, unit, len(self.free)))

    def _add_pair(self, words: tuple[str, ...], first: float, second: float) -> None:
        """Add `[epoch, step]`."""
        if not words or find_meaning(words) is None or is_count(words):
            self.slots += [(first, None), (second, None)]

    def _add_unnamed(self, gap: str, value: float, *, whole: bool, total: float | None, unit: str) -> None:
        plain = gap.replace(" ", "")
        if unit == "%" and self.percent is None:
            self.percent = value
        elif unit and parse_unit(unit):
            self._append((), value, whole=whole, unit=unit)
        elif unit.lower() in _PLAIN_UNITS and whole and total is None:
            self._append(split_name(unit), value, whole=whole)
        elif total is not None and not ("(" in plain and self.last_words):
            self.slots.append((value, total))
        elif whole and plain in {"0[", "0][", "^[", "["} and self._closes():
            self.slots.append((value, None))
        elif whole and plain == "^" and self._is_index():
            self.index = int(value) if self.tokens[self.position].text == ":" else None
            self.slots.append((value, None))
        elif not unit and (name := self._find_name_after()):
            self._append(name, value, whole=whole)
        elif self.last_words and plain in {"0", "0:", "0=", "0,", "0->"} | ({"0)=", "0):"} if self.named else set()):
            self._join_index(plain, value, unit)

    def _join_index(self, plain: str, value: float, unit: str) -> None:
        """Read `Loss at step 100: 2.3` and `Train loss 0 57.77`: a name, a count, and then the value."""
        words, index, whole, total, _, free = self.named[-1]
        if ")" in plain:
            self.named[-1] = NamedFigure(words, value, False, None, unit, free)
            return
        if not whole or total is not None or unit not in {"", "%"} or (plain == "0,"):
            return
        counts = tuple(word for word in words if word not in FILLERS)
        cut = next(
            (i for i in range(len(counts)) if (m := find_meaning(counts[i:])) and m.role in {Role.STEP, Role.EPOCH}), None
        )
        name = counts[:cut] if cut is not None else counts
        meaning = find_meaning(name) if name else None
        if meaning is None or meaning.role is not Role.LOSS or unit:
            return
        self.named[-1] = NamedFigure(counts[cut:] if cut is not None else ("step",), index, True, None, "", free)
        self._append(name, value, whole=False)
        self.last_words = ()

    def _is_index(self) -> bool:
        """Return whether the number at the beginning of a line stands alone: `10 | loss 2.3`."""
        if self.position >= len(self.tokens):
            return False
        after = self._skip_spaces(self.position)
        separates = after < len(self.tokens) and self.tokens[after].text in {"|", ";"}
        return separates or self.tokens[self.position].text in {":", ",", "\t"}

    def _find_name_after(self) -> tuple[str, ...]:
        """Return the name of a loss after its value: `2.3 avg loss`."""
        words: list[str] = []
        for token in self.tokens[self.position : self.position + 6]:
            if token.kind == "word":
                words += split_name(token.text)
            elif token.kind != "space":
                if token.text in ":=(":
                    return ()
                break
        meaning = find_meaning(tuple(words)) if 0 < len(words) <= _MAX_NAME_AFTER else None
        return tuple(words) if meaning and meaning.role is Role.LOSS and meaning.rank <= ANY_LOSS else ()

    def _closes(self) -> bool:
        return any(token.text in "])" for token in self.tokens[self.position : self.position + 2] if token.kind == "mark")

    def _take_second(self, token: Token) -> float | None:
        """Return the second number of `[1, 100]`."""
        rest = [item for item in self.tokens[self.position : self.position + 6] if item.kind != "space"]
        closes = len(rest) > 2 and rest[2].text in {"]", ")"}  # noqa: PLR2004 - `, 100 ]`
        if not closes or rest[0].text != "," or rest[1].kind != "number":
            return None
        if not is_whole(rest[1].text) or not is_whole(token.text):
            return None
        while self.tokens[self.position].text not in {"]", ")"}:
            self.position += 1
        return parse_figure(rest[1].text)

    def _take_total(self) -> float | None:
        """Return the number after `/`, `of` or `out of`."""
        place = self._skip_spaces(self.position)
        if place >= len(self.tokens):
            return None
        if self.tokens[place].text == "of" or self.tokens[place].text == "/":
            place = self._skip_spaces(place + 1)
        elif [item.text for item in self.tokens[place : place + 3 : 2]] == ["out", "of"]:
            place = self._skip_spaces(place + 3)
        else:
            return None
        if place >= len(self.tokens) or self.tokens[place].kind != "number":
            return None
        self.position = place + 1
        value = parse_figure(self.tokens[place].text)
        multiplier, unit = self._take_unit()
        return value * multiplier if value is not None and unit is not None else None

    def _skip_spaces(self, place: int) -> int:
        while place < len(self.tokens) and self.tokens[place].kind == "space":
            place += 1
        return place

    def _take_unit(self) -> tuple[float, str | None]:
        """Return the multiplier and the unit after a number; None for a part of a word, such as `3f2a`."""
        rest = self.tokens[self.position : self.position + 4]
        if not rest:
            return 1.0, ""
        adjacent = rest[0]
        if adjacent.kind == "word":
            self.position += 1
            multiplier, unit = _parse_suffix(adjacent.text)
            return (multiplier, self._take_rate() or "") if unit == "" else (multiplier, unit)
        if adjacent.text == "%" or (adjacent.kind == "space" and len(rest) > 1 and rest[1].text == "%"):
            self.position += 1 if adjacent.text == "%" else 2
            return 1.0, "%"
        if adjacent.text == "/" and len(rest) > 1 and rest[1].kind == "word" and seconds_in(rest[1].text.partition("/")[0]):
            self.position += 2
            return 1.0, f"samples/{rest[1].text}"
        if adjacent.kind == "space" and len(rest) > 1 and rest[1].kind == "word":
            return self._take_spaced_unit(rest)
        return 1.0, ""

    def _take_rate(self) -> str | None:
        """Return the unit in `12.5K tok/s`, after the suffix."""
        rest = self.tokens[self.position : self.position + 3]
        kinds = [token.kind for token in rest]
        if kinds[:2] != ["space", "word"] or not parse_unit(rest[1].text) or rest[-1].text in {":", "="}:
            return None
        self.position += 2
        return rest[1].text

    def _take_spaced_unit(self, rest: list[Token]) -> tuple[float, str]:
        """Return the unit in `12.3 samples/s`, `1.0 s / it` or `38.3 K`."""
        word, after = rest[1].text, "".join(token.text for token in rest[2:])
        parts = self.tokens[self.position + 2 : self.position + 6]
        if [token.kind for token in parts] == ["space", "mark", "space", "word"] and parts[1].text == "/":
            self.position += 6
            return 1.0, f"{word}/{parts[3].text}"
        if after.lstrip().startswith((":", "=")):
            return 1.0, ""  # a name
        multiplier, unit = (_SUFFIXES[word.lower()], "") if word in {"K", "M"} else (1.0, word)
        is_unit = parse_unit(word) or seconds_in(word) or word == "percent" or (word.lower() in _PLAIN_UNITS and not self.words)
        if unit and not is_unit:
            return 1.0, ""
        self.position += 2
        return multiplier, unit


def _split_digits(word: str) -> tuple[str, str]:
    """Return `epoch` and `3` for `epoch3`, else the word."""
    name = word.rstrip("0123456789")
    digits = word[len(name) :]
    meaning = find_meaning(split_name(name)) if digits and name else None
    if meaning and meaning.role in {Role.STEP, Role.EPOCH} and meaning.rank < CLEAR_COUNT and name.isalpha():
        return name, digits
    return word, ""


def _parse_suffix(text: str) -> tuple[float, str | None]:
    lower = text.lower()
    if len(text) == 1 and lower in _SUFFIXES:
        return _SUFFIXES[lower], ""
    if lower in _UNITS or lower in _PLAIN_UNITS:
        return 1.0, lower
    if parse_unit(text) or lower.split("/", maxsplit=1)[0] in {"s", "gb", "mb", "ms"}:
        return 1.0, lower
    if lower[0] in _SUFFIXES and parse_unit(text[1:]):
        return _SUFFIXES[lower[0]], text[1:]
    return 1.0, None
