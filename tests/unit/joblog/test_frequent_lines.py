"""The pattern that kfjob proposes for lines whose names it does not know."""

from __future__ import annotations

import pytest

from kfjob.joblog.progress.exact_formats import custom_format
from kfjob.joblog.progress.general.frequent_lines import MAX_LAYOUTS, FrequentLines
from kfjob.joblog.progress.general.unread_lines import guess_unread


def read(layout: str, *, others: int = 0) -> FrequentLines:
    """Return the layouts of a log with 30 lines of this layout, and some lines that no other line is like."""
    frequent = FrequentLines()
    for step in range(1, 31):
        frequent = frequent.add(layout.format(step=step, loss=-2.5 / step, constant=7))
        for number in range(others):
            frequent = frequent.add(f"{'word ' * (step * others + number)} took 3 s")
    return frequent


@pytest.mark.parametrize(("layout", "loss"), [
    ("done {step}; E={loss}", -2.5 / 30),
    ("{step} {loss:.6f}", -0.083333),
    ("2026-11-28 19:10:{step:02d} says 'fit' {step}: {loss:.2e} in {constant} s", -0.0833),
    ("[rank0]: chunk {step}/{constant}", None),
    ("INFO:main:sweep {constant}, tick {step}", None),
    ("it{step} -> {loss}", -2.5 / 30),
    ("{step} | {loss} | x", -2.5 / 30),
])  # fmt: skip
def test_pattern_reads_the_number_that_grows_and_the_fraction_that_changes(layout: str, loss: float | None):
    best = guess_unread(read(layout, others=2))
    assert best is not None
    assert best.pattern is not None
    reading = custom_format(best.pattern)(best.example)
    assert reading is not None
    assert (reading.step, reading.loss) == (30, pytest.approx(loss) if loss else None)


@pytest.mark.parametrize("layout", ["working hard", "took 3.5 s on 8 cores", "loaded {constant} of {constant} shards"])
def test_lines_in_which_no_number_changes_are_no_progress(layout: str):
    assert guess_unread(read(layout)) is None


def test_a_short_table_is_no_progress():
    frequent = FrequentLines()
    for rank in range(3):
        for total in (33, 36, 39):
            frequent = frequent.add(f"  rank {rank}  {total} -> {rank * total}")
    assert guess_unread(frequent) is None


def test_a_loss_alone_has_a_pattern():
    best = guess_unread(read("{loss}"))
    assert best is not None
    assert str(best).endswith("in the spec reads only their loss")


def test_numbers_without_a_pattern_are_named_by_the_user():
    frequent = FrequentLines()
    for number in (5, 3, 2, 5, 3, 2, 5, 3, 2, 4):
        frequent = frequent.add(f"state {number} reached")
    advice = "name the numbers in them with `progress:` in the spec, as in `progress: '(?P<step>"
    assert f"if lines like `state 4 reached` are progress, {advice}" in str(guess_unread(frequent))


def test_layouts_are_limited():
    assert len(read("a {step}", others=3).layouts) <= MAX_LAYOUTS
