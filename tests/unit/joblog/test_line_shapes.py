"""The shape of a line: lines that differ only in their numbers are parsed once, and have the figures of a line read alone."""

from __future__ import annotations

from itertools import chain

import pytest

from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.progress.figures.line_figures import read_content
from kfjob.joblog.progress.figures.line_shape import find_shape
from kfjob.joblog.progress.figures.tokens import hide_numbers
from tests.unit.joblog.general_formats import FORMATS
from tests.unit.joblog.general_programs import PROGRAMS

SPECIAL = (
    "epoch7 step12: loss 2.25", "iter 3: rec@5 0.25 loss 2.5", "rank3: step 20 loss 1.5", "step 0x1f loss 2.5",
    "step 20 loss 0,1402", "step 20 loss 1,140", "step 1,140 loss 2.5", "step 20 loss 2,345 12.5K tok/s",
    "Batch [51-60] loss 2.5", "第3轮 loss 2.5", "step 20 loss 1e999 lr 0.1", "step 20 loss 1e-05", "3: step 20 loss 2.5",
    "step：２０，loss：2.5", "step 20/0 loss 0.0", "step 20 loss nan", "step 20 loss 0.5 4.19M/1.00B tokens",
    "step 20 | 3f2a | loss 2.5", "step 20 loss: -0.5", "loss_2=0.5 step=20", "step １，２３４ loss 2.5",
)  # fmt: skip
"""Lines whose digits say more than a value, or whose values are special."""
LONG = (
    f"step 30 loss 1.{'1' * 400}K", f"{'9' * 306}K: step 20 loss 2.5", f"rank {'9' * 400} step 20 loss 2.5",
    f"step {'9' * 309} loss 2.5", f"step 20 loss 1e{'9' * 400}", f"epoch{'9' * 400} loss 2.0", "rank: 1e308K loss 2.0 step 3",
    "loss: 0.5e+0000 step 7", "step: 7 | tok/s: 1.2e+0003", ",0x1f@5%key:3m", "1;" * 2000,
)  # fmt: skip
"""Lines whose numbers are too large."""


def collect_lines() -> list[str]:
    """Return the lines above, and those of all formats that the tests know."""
    formats = (lines for group in (FORMATS, PROGRAMS) for lines, _ in group.values())
    return sorted(line for line in {*SPECIAL, *LONG, *chain.from_iterable(formats)} if "\r" not in line)


LINES = collect_lines()


def shift_digits(text: str, by: int) -> str:
    """Return the line with other numbers; zeros stay."""
    return "".join(str((int(letter) + by - 1) % 9 + 1) if letter in "123456789" else letter for letter in text)


def test_lines_have_the_figures_that_they_have_alone():
    alone = {}
    for line in LINES:
        find_shape.cache_clear()
        alone[line] = read_content(clean_line(line)[0])
    find_shape.cache_clear()
    for line in LINES:
        for by in (1, 4, 5):
            read_content(clean_line(shift_digits(line, by))[0])
    known = find_shape.cache_info().misses
    differs = {line: figures for line, figures in alone.items() if repr(read_content(clean_line(line)[0])) != repr(figures)}
    assert not differs
    assert find_shape.cache_info().misses - known < len(LINES) / 3  # those with digits in their words


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("step 10 loss 2.31", "step 57 loss 9.99"),
        ("02/03/2026 step=100, lr=1e-05", "11/09/2031 step=999, lr=7e-08"),
        ("epoch3 loss 10,5", "epoch3 loss 20,7"),
    ],
)
def test_lines_that_differ_in_their_numbers_have_one_shape(first: str, second: str):
    assert hide_numbers(first) == hide_numbers(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("epoch3 loss 2.5", "epoch4 loss 2.5"),
        ("rec@5 0.5", "rec@1 0.5"),
        ("at 0x1f", "at 11x1f"),
        ("loss 0,123", "loss 4,123"),
        ("loss 2.5", "loss 12.5"),
    ],
)
def test_other_words_zeros_and_lengths_are_other_shapes(first: str, second: str):
    assert hide_numbers(first) != hide_numbers(second)
