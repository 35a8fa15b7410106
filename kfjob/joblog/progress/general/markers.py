"""The literals by which a search finds lines with figures.

Only the few literals of the search through whole logs are chosen by hand, for its speed. The others come from the vocabulary
and the translations: a name that the chosen ones do not find, in one of its forms, is a literal of another search.
"""

from __future__ import annotations

from collections.abc import Iterable

from kfjob.joblog.lines.meanings import Quantity, find_meaning
from kfjob.joblog.lines.translations import TRANSLATIONS, is_unspaced, translate
from kfjob.joblog.lines.vocabulary import (
    EPOCHS,
    LEARNING_RATE,
    LEARNING_WORDS,
    LOSS_PARTS,
    LOSSES,
    RATES,
    SHORT_RATE_UNITS,
    STEPS,
    WEAK_COUNT,
)

MAIN_MARKERS = (
    "loss", "Loss", "LOSS", "step", "Step", "STEP", "poch", "EPOC", "iter", "Iter", "pdate", "batch", "Batch", "it/s", "s/it",
    "/sec", "per_s", "per s", "es/s", "peed", "ghpu", "Cost", "piso", "earn", "rmse", "kimg", "raini", "erlust", "perte",
    "perd",
)  # fmt: skip
"""A log with figures of training has lines with one of these, or with a name in `RARE_MARKERS`.

A search for at most 32 literals of at least four bytes reads 32 bytes at once. With up to 64 literals it takes 1.5 to 4
times as long, and with more of them 20 times.
"""
MORE_MARKERS = (
    "ITER", "%|█", "%|##", "%|  ", "ens/s", " lr ", " lr:", " lr-", " lr=", "/lr=", '"lr"', "'lr'", "_lr",
    " LR ", " LR:", " LR=", "/LR ", "ntropy", "Up. ", " fps", "VALI", "VAL ", "alid", "pass: ", "SPS:", "cost", "ound ",
    "otal", "etrics",
)  # fmt: skip
"""In a log with a line of figures, lines with these may hold figures of the same step.

One search finds them and `MAIN_MARKERS`, at most 64 literals together.
"""
FIRST_MARKERS = ("lr:", "lr=", "lr ")
"""A line with a figure of training may begin with one of these."""
_SEPARATORS = " :=\"'\t|(/]"
"""What may follow a name."""
_FIGURES = frozenset({Quantity.STEP, Quantity.EPOCH, Quantity.LOSS, Quantity.LR, Quantity.SPEED})
_STEM = 4
"""Letters of a literal: shorter ones are in many words."""
_UNSPACED_STEM = 2


def _find_forms(name: str) -> tuple[str, ...]:
    """Return the name in each form of its letters, and with each character that joins its words."""
    joined = dict.fromkeys(name.replace(" ", joint) for joint in " _-")
    return tuple(dict.fromkeys(form for text in joined for form in (text, text.upper(), text.capitalize(), text.title())))


def _is_found(text: str, markers: Iterable[str]) -> bool:
    return any(marker in text for marker in markers)


def _is_figure(word: str) -> bool:
    """Return whether the word of another language names a figure."""
    meaning = find_meaning(translate((word,)))
    return meaning is not None and meaning.quantity in _FIGURES


FOREIGN_NAMES = tuple(sorted(word for word in TRANSLATIONS if _is_figure(word)))
"""Names of figures in other languages."""


def _find_stems(word: str) -> tuple[str, ...]:
    """Return the literals for a word as it is, and with a capital letter."""
    if is_unspaced(word):
        return (word[:_UNSPACED_STEM],)
    return (word[1 : _STEM + 1],) if len(word) > _STEM else (word, word.capitalize())


def _mark_foreign_names() -> tuple[str, ...]:
    """Return literals for the names in other scripts and with other letters; a block of plain ASCII has none of them."""
    stems: dict[str, None] = {}
    for word in sorted(FOREIGN_NAMES, key=len):  # a short word finds the longer ones that begin with it
        forms = (word, word.capitalize())
        if not word.isascii() and not all(_is_found(form, (*MAIN_MARKERS, *stems)) for form in forms):
            stems |= dict.fromkeys(_find_stems(word))
    return tuple(stems)


FOREIGN_MARKERS = _mark_foreign_names()
"""Lines with figures in other languages, at most 64; a log of plain ASCII has only `MAIN_MARKERS` and `RARE_MARKERS`."""

_COUNTERS = tuple(name for group in (*STEPS[:WEAK_COUNT], EPOCHS[0]) for name in group if len(name) >= _STEM)
_LOSSES = (*(name for group in LOSSES for name in group), *sorted(LOSS_PARTS))
NAMES = (*_COUNTERS, *_LOSSES, *sorted(RATES), LEARNING_RATE)
"""Names of figures that a line alone may hold. Shorter counters need a figure beside them, and `MORE_MARKERS` find `lr`."""


def _mark_rare_names() -> tuple[str, ...]:
    """Return the names without a literal of the other searches, in each form of their letters and before each separator."""
    foreign = (*FOREIGN_NAMES, *(word for word, english in TRANSLATIONS.items() if english in LEARNING_WORDS))
    names = [*NAMES, *(name for name in foreign if name.isascii() and len(name) >= _STEM)]
    forms = dict.fromkeys(form for name in names for form in _find_forms(name))
    rates = dict.fromkeys(form for unit in SHORT_RATE_UNITS for form in (unit, unit.capitalize(), unit.upper()))
    rare = [form for form in (*forms, *rates) if not _is_found(form, (*MAIN_MARKERS, *FOREIGN_MARKERS))]
    letters = tuple(f" {letter}{after}" for letter in "Ll" for after in "0123456789:= ")
    return (*(f"{form}{separator}" for form in rare for separator in _SEPARATORS), *letters)


RARE_MARKERS = _mark_rare_names()
"""The names of figures that few programs print without one of `MAIN_MARKERS`, as in `[it 12] nll 2.93`.

The search for them takes three times as long, so the prefilter searches the beginning of a log; it goes on where a line there
has figures.
"""
