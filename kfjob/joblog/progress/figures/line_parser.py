"""The parser of a line: it reads the numbers with their names, from left to right."""

from __future__ import annotations

import math
from typing import NamedTuple

from msgspec import Struct, field

from kfjob.joblog.lines.meanings import (
    Meaning,
    Quantity,
    find_meaning,
    find_phase,
    is_count,
    is_metric,
    parse_unit,
    split_name,
    split_words,
)
from kfjob.joblog.lines.vocabulary import COUNT_UNITS, FILLERS, LOSS_WORDS
from kfjob.joblog.progress.figures.gaps import FIRST, VALUES, VALUES_OF_PAIRS, After, Gap, Place, is_counter
from kfjob.joblog.progress.figures.names import MAX_TOKENS_OF_NAME, find_name_after, names_loss, split_digits
from kfjob.joblog.progress.figures.tokens import Cursor, Number, Token, find_number, is_whole, may_be_decimal

MAX_FIGURES = 128
"""Named values of one line."""
_FRACTIONS = frozenset({Quantity.LOSS, Quantity.LR, Quantity.GRAD_NORM})
_ORDINAL = "第"
"""It stands before a number whose name follows, as in `第3轮`."""
MAX_NAME = 8
"""Words of the name of a value."""
_KEYS = frozenset({"key", "name", "tag", "metric"})
"""They stand before the name of a value, in `"key": "train_loss", "value": 2.3`."""
_WRAPPERS = frozenset({"tensor", "array", "devicearray", "float", "float32", "float64", "int", "int64", "decimal", "scalar"})


class NamedNumber(NamedTuple):
    """A number with its name."""

    words: tuple[str, ...]
    number: Number
    whole: bool
    total: Number | None
    unit: str
    free: int  # words without a figure before it


class LineParser(Struct):
    """Reads one line from left to right: `run` fills `named`, `slots`, `free` and `percent`."""

    cursor: Cursor
    words: list[str] = field(default_factory=list)  # since the last number or separator
    free: list[str] = field(default_factory=list)
    parents: list[list[str]] = field(default_factory=list)
    named: list[NamedNumber] = field(default_factory=list)
    slots: list[tuple[Number, Number | None]] = field(default_factory=list)  # counters without a name
    spare: list[tuple[Number, Number | None]] = field(default_factory=list)  # whole numbers without a name that may count
    gap: Gap = field(default_factory=Gap)
    ordinal: Number | None = None
    qualifier: int = 0  # words before a parenthesis in the name, as in `lr(Cosine): 0.1`
    last_words: tuple[str, ...] = ()
    percent: Number | None = None
    key: tuple[str, ...] = ()  # the name of the next `value`
    leading_number: Number | None = None  # before a colon at the beginning: a counter, or the rank, as srun prints it

    def run(self) -> None:
        """Read the line."""
        while not self.cursor.at_end and len(self.named) < MAX_FIGURES:
            token = self.cursor.take()
            if token.kind == "word":
                self._take_word(token)
            elif token.kind == "number":
                self._take_number(token)
            elif token.kind == "junk":
                self._forget()
            elif token.kind == "mark":
                self._take_mark(token.text)
            else:
                self._take_space(token)
        self.free += self.words

    def _forget(self) -> None:
        """Forget the words before something that is no figure."""
        self.words.clear()
        self.gap, self.last_words = Gap(After.OTHER), ()

    def _take_space(self, token: Token) -> None:
        self.gap.is_spaced = True
        if (len(token.text) > 1 or "\t" in token.text) and self.words and self.cursor.next_is_word():
            self.free += self.words
            self.words.clear()

    def _take_word(self, token: Token) -> None:
        if self._takes_key(token) or self._ends_ordinal(token):
            return
        if self._wraps_value(token):
            self.gap = Gap(After.OTHER, ":")
            return
        if token.text == "#":
            self.gap.add("#")
            return
        if self.gap.separates:
            self.free += self.words
            self.words.clear()
        name, digits = split_digits(token.text)
        words = split_name(name)
        self.words += (name,) if find_phase(words) and not split_words(name) else words
        self.gap = Gap(After.WORD)
        number = find_number(token._replace(text=digits, start=token.end - len(digits))) if digits else None
        if number:
            total = self.cursor.take_total(named=True)
            self._add_named(tuple(self.words), number, whole=True, total=total, unit="")

    def _takes_key(self, token: Token) -> bool:
        """Return whether the word is a name as a value, as in `"key": "train_loss", "value": 2.3`."""
        if not (self.gap.separates and len(self.words) == 1 and self.words[0] in _KEYS):
            return False
        self.key, self.words, self.gap = split_name(token.text), [], Gap(After.OTHER)
        return True

    def _wraps_value(self, token: Token) -> bool:
        """Return whether the word is a type around a value, as in `tensor(2.3, device='cuda:0')`."""
        name = token.text.lower().rpartition(".")[2]
        opens = self.cursor.next_is("(")
        return opens and bool(self.words) and (name in _WRAPPERS or token.text.startswith("np."))

    def _ends_ordinal(self, token: Token) -> bool:
        """Return whether the word names the number of `第 3 轮` before it, and add that number."""
        if self.ordinal is None:
            return False
        number, self.ordinal = self.ordinal, None
        if not is_count(split_name(token.text)):
            return False
        self._add_named(split_name(token.text), number, whole=True, total=None, unit="")
        return True

    def _take_mark(self, mark: str) -> None:
        if mark in "([":
            self.qualifier = len(self.words) if mark == "(" else 0
        elif mark == "{":
            self.parents.append(list(self.words) if self.words and self.gap.separates else [])
            self.words.clear()
        elif mark == "}" and self.parents:
            self.parents.pop()
        is_arrow = mark == "-" and any(token.text == ">" for token in self.cursor.peek(2))
        ends_name = mark in ",;|{}&?" or (mark in "-•·" and self.gap.is_spaced and not is_arrow)
        if ends_name and self._names_next_number():
            mark = ":"
        elif ends_name:
            self.free += self.words
            self.words.clear()
            self.last_words = () if mark != "," else self.last_words
        if mark not in "'\"`*":
            self.gap.add(mark)

    def _names_next_number(self) -> bool:
        """Return whether the words are the name of the number that follows the mark, as in `train loss | 2.51`."""
        meaning = self._find_name()
        number = next((token for token in self.cursor.peek(MAX_TOKENS_OF_NAME) if token.kind != "space"), None)
        if meaning is None or number is None or number.kind != "number":
            return False
        return is_whole(number.text) == (meaning.quantity not in _FRACTIONS)

    def _take_number(self, token: Token) -> None:
        self._skip_fillers()
        ends_range = self._ends_range(token)
        number, whole = find_number(token), is_whole(token.text)
        meaning = self._find_name()
        if number and meaning and meaning.quantity in _FRACTIONS and may_be_decimal(token.text):
            number, whole = number._replace(has_decimal_comma=True), False  # nobody prints these with groups of thousands
        is_rate = meaning is not None and meaning.quantity is Quantity.SPEED and not meaning.unit
        factor, unit = self.cursor.take_unit(named=bool(self.words), is_rate=is_rate)
        if number is None or unit is None:
            self._forget()
            return
        number = number._replace(factor=factor)
        whole = whole or (_is_multiple(token.text, factor) and bool(self.words or unit))  # `[3.20m]` may be minutes
        if ends_range:
            self._close_range(number._replace(factor=-factor), unit)
            return
        if whole and self.words == [_ORDINAL]:
            self.words, self.ordinal = [], number
            return
        opened = self.gap.marks.endswith(("[", "("))
        second = self.cursor.take_second(token) if whole and opened else None
        total = None if second is not None else self.cursor.take_total(named=bool(self.words))
        place, self.gap = self.gap.place, Gap(After.NUMBER)
        words = self._take_name()
        if second is not None:
            self.slots += [(number, None), (second, None)]  # `[epoch, step]`
        elif words:
            self._add_named(words, number, whole=whole, total=total, unit=unit)
        else:
            self._add_unnamed(place, number, whole=whole, total=total, unit=unit)

    def _find_name(self) -> Meaning | None:
        """Return what the words since the last number or separator mean."""
        return find_meaning(tuple(self.words[-MAX_NAME:])) if self.words else None

    def _take_name(self) -> tuple[str, ...]:
        """Return the name of the number and forget it."""
        words, self.words = tuple(self.words[-MAX_NAME:]), []
        if words == ("value",) and self.key:
            words, self.key = self.key, ()
        return words

    def _skip_fillers(self) -> None:
        """Forget the words between two numbers if they say nothing, as in `loss at step 100 is 2.3`."""
        if self.last_words and self.words and FILLERS.issuperset(self.words):
            self.words, self.gap = [], Gap(After.NUMBER)

    def _ends_range(self, token: Token) -> bool:
        """Return whether the number ends `[0-50]`."""
        position = self.cursor.position
        follows_number = position > 1 and self.cursor.tokens[position - 2].kind == "number"
        return token.text.startswith("-") and follows_number and bool(self.named) and not self.words

    def _close_range(self, end: Number, unit: str) -> None:
        """Read the end of `Batch [51-60]`."""
        before = self.named[-1]
        words = split_name(unit) if is_count(split_name(unit)) else before.words  # `51-60batch`
        self.named[-1] = before._replace(words=words, number=end, unit="")

    def _add_named(self, words: tuple[str, ...], number: Number, *, whole: bool, total: Number | None, unit: str) -> None:
        parents = tuple(word for parent in self.parents for word in parent if find_phase((word,)) or word in LOSS_WORDS)
        if unit == "%" and self.percent is None and not is_metric(words):
            self.percent = number  # `Progress: 12.1%`
        plain = words[: self.qualifier]
        known = plain if plain and find_meaning(words) is None and find_meaning(plain) else words
        self._append(parents + known, number, whole=whole, total=total, unit=unit)
        self.qualifier = 0
        self.last_words = words
        self.words = []
        self.gap = Gap(After.NUMBER)

    def _append(
        self, words: tuple[str, ...], number: Number, *, whole: bool, total: Number | None = None, unit: str = ""
    ) -> None:
        self.named.append(NamedNumber(words, number, whole, total, unit, len(self.free)))

    def _add_unnamed(self, place: Place, number: Number, *, whole: bool, total: Number | None, unit: str) -> None:
        if unit == "%" and self.percent is None:
            self.percent = number
        elif unit and parse_unit(unit):
            self._append((), number, whole=whole, unit=unit)
        elif unit.lower() in COUNT_UNITS and whole and total is None:
            self._append(split_name(unit), number, whole=whole)
        elif total is not None and not ("(" in place[1] and self.last_words):
            self.slots.append((number, total))
        elif whole and is_counter(place, self.cursor):
            self.slots.append((number, None))
            if place == FIRST and self.cursor.next_is(":"):
                self.leading_number = number
        elif not unit and (name := find_name_after(self.cursor, whole=whole)):
            self._append(name, number, whole=whole)
        elif not self._continues_value(place, number, whole=whole, unit=unit) and whole and not unit:
            self.spare.append((number, total))

    def _continues_value(self, place: Place, number: Number, *, whole: bool, unit: str) -> bool:
        """Return whether the number belongs to the one before it, such as a newer value."""
        if not self.last_words or not self.named:
            return False
        before = self.named[-1]
        if place[1].endswith(">") and not (whole or before.whole):
            self.named[-1] = before._replace(number=number)  # `loss 0.69 --> 0.67`
        elif place in VALUES:
            self._join_index(number, unit)
        elif place in VALUES_OF_PAIRS:
            self.named[-1] = before._replace(number=number, whole=False, total=None, unit=unit)
        else:
            return False
        return True

    def _join_index(self, number: Number, unit: str) -> None:
        """Read `Loss at step 100: 2.3` and `Train loss 0 57.77`: a name, a count, and then the value."""
        words, index, whole, total, _, free = self.named[-1]
        if not whole or total is not None or unit:
            return
        before = self.named[-2].words if self.named[1:] and is_count(words) else ()  # `loss in epoch 2 iteration 9: 2.3`
        counts = tuple(word for word in (before[:1] if names_loss(before[:1]) else ()) + words if word not in FILLERS)
        meanings = ((place, find_meaning(counts[place:])) for place in range(is_metric(counts[:1]), len(counts)))
        cut = next((place for place, item in meanings if item and item.quantity in {Quantity.STEP, Quantity.EPOCH}), None)
        name = counts[:cut] if cut is not None else counts
        meaning = find_meaning(name) if name else None
        if not (is_metric(name) if meaning is None else meaning.quantity is Quantity.LOSS):
            return
        self.named[-1] = NamedNumber(counts[cut:] if cut is not None else ("step",), index, True, None, "", free)
        self._append(name, number, whole=False)
        self.last_words = ()


def _is_multiple(text: str, factor: float) -> bool:
    """Return whether the suffix makes the number a whole one: `1.25K`, and not `1.2345K`."""
    return factor > 1 and len(text.partition(".")[2]) <= round(math.log10(factor))
