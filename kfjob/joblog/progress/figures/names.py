"""The names next to a number: the name of a loss after it, and a counter with its digits in one word."""

from __future__ import annotations

from kfjob.joblog.lines.meanings import Quantity, find_meaning, split_name
from kfjob.joblog.lines.vocabulary import ANY_LOSS, CLEAR_COUNT, SUM_OF_LOSSES
from kfjob.joblog.progress.figures.tokens import Cursor

MAX_TOKENS_OF_NAME = 6
"""Tokens after a value in which its name is searched."""
_MAX_NAME_AFTER = 3
"""Words of a name that stands after its value."""


def precedes_quote(cursor: Cursor) -> bool:
    """Return whether a name in quotes follows, as in `(10, 'loss', 2.3)`."""
    return "".join(token.text for token in cursor.peek(3)) in {", '", ', "'}


def precedes_loss(cursor: Cursor) -> bool:
    """Return whether the name of a loss follows, as in `10 train loss: 2.3`."""
    words: list[str] = []
    for token in cursor.peek(MAX_TOKENS_OF_NAME):
        if token.kind == "word":
            words += split_name(token.text)
        elif token.kind != "space":
            meaning = find_meaning(tuple(words)) if words and token.text in ":=" else None
            return meaning is not None and meaning.quantity is Quantity.LOSS and meaning.priority < SUM_OF_LOSSES
    return False


def find_name_after(cursor: Cursor, *, whole: bool = False) -> tuple[str, ...]:
    """Return the name of a loss after its value, and move behind it: `2.3 avg loss`, but not `10 loss - 2.3`."""
    words: list[str] = []
    length = 0
    for token in cursor.peek(MAX_TOKENS_OF_NAME):
        if token.kind == "word":
            words += split_name(token.text)
        elif token.kind != "space":
            if token.text in (":=(-" if whole else ":=("):
                return ()
            break
        length += 1
    meaning = find_meaning(tuple(words)) if 0 < len(words) <= _MAX_NAME_AFTER else None
    if meaning is None or meaning.quantity is not Quantity.LOSS or meaning.priority > ANY_LOSS:
        return ()
    cursor.position += length
    return tuple(words)


def names_loss(words: tuple[str, ...]) -> bool:
    """Return whether the name has a word for a loss; `rec@5` is a recall."""
    meaning = find_meaning(words)
    return meaning is not None and meaning.quantity is Quantity.LOSS and (meaning.priority <= ANY_LOSS or words[-1] == "cost")


def split_digits(word: str) -> tuple[str, str]:
    """Return `epoch` and `3` for `epoch3`; else the word."""
    name = word.rstrip("0123456789")
    digits = word[len(name) :]
    meaning = find_meaning(split_name(name)) if digits and name.isalpha() else None
    if meaning and meaning.quantity in {Quantity.STEP, Quantity.EPOCH} and meaning.priority < CLEAR_COUNT:
        return name, digits
    return word, ""
