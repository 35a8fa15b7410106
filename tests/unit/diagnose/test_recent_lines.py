"""Times of lines that have none of their own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.engine.line_reports import MAX_LINES, RecentLines, find_timestamp
from kfjob.joblog.lines.timestamps import Timestamp

DATED = "2026-11-21 07:10:48 step"
LINES = st.lists(
    st.tuples(st.sampled_from([None, None, None, 5 * SECOND]), st.sampled_from(["plain", DATED, "W1121 06:18:58.464000 1 a]"]))
)


def search_backwards(lines: list[tuple[int | None, str]]) -> Timestamp:
    for distance, (time, text) in enumerate(reversed(lines[-MAX_LINES:])):
        if timestamp := Timestamp(time=time) if time is not None else find_timestamp(text):
            return Timestamp(timestamp.time, timestamp.yearless, exact=distance == 0)
    return Timestamp(exact=False)


@given(lines=LINES, asked=st.sets(st.integers(min_value=0, max_value=30)))
def test_timestamp_is_that_of_the_newest_line_that_has_one(lines: list[tuple[int | None, str]], asked: set[int]):
    recent = RecentLines()
    for number, (time, text) in enumerate(lines):
        recent.append(time, text)
        if number in asked:
            assert recent.timestamp() == search_backwards(lines[: number + 1])
    assert recent.timestamp() == search_backwards(lines)


def test_timestamp_of_a_line_far_back_does_not_count():
    recent = RecentLines()
    recent.append(None, DATED)
    for _ in range(MAX_LINES - 1):
        recent.append(None, "plain")
        assert recent.timestamp().time
    recent.append(None, "plain")
    assert recent.timestamp() == Timestamp(exact=False)
