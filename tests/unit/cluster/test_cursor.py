"""A log that is cut anywhere and resumed shows every line once."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.units import SECOND
from kfjob.cluster.cursor import DISORDER, LogCursor

MILLISECOND = 1_000_000
START = 1_795_253_000 * SECOND


@dataclass
class Log:
    """What the kubelet has: times in the order of the file."""

    times: list[int]

    def since(self, time: int | None) -> list[int]:
        """As the kubelet: every line of that time or later, in the order of the file, wherever it stands."""
        return [at for at in self.times if time is None or at >= time]


steps = st.sampled_from([0, 0, 1, MILLISECOND, 200 * MILLISECOND, 499 * MILLISECOND, SECOND, 3 * SECOND])
disorders = st.sampled_from([0, 0, 0, 1, MILLISECOND, DISORDER // 2])


@st.composite
def logs(draw: st.DrawFn) -> Log:
    now, times = START, []
    for step, late in draw(st.lists(st.tuples(steps, disorders), max_size=40)):
        now += step
        times.append(now - late)
    return Log(times)


@given(log=logs(), cuts=st.lists(st.integers(min_value=0, max_value=45), max_size=8))
def test_no_line_is_lost_and_none_is_doubled(log: Log, cuts: list[int]):
    """Positions in the file tell lines of one time apart, as their texts would."""
    cursor, shown = LogCursor(), []
    for cut in [*cuts, None]:
        cursor.resume()
        for time in log.since(cursor.since)[:cut]:
            if cursor.is_new(time):
                assert not cursor.take_gap()
                shown.append(time)
    assert shown == log.times


@given(log=logs(), cut=st.integers(min_value=1, max_value=40), rotated=st.integers(min_value=0, max_value=40))
def test_a_gap_is_reported_if_the_last_line_is_lost(log: Log, cut: int, rotated: int):
    cursor, shown, gap = LogCursor(), [], False
    for time in log.times[:cut]:
        assert cursor.is_new(time)
        shown.append(time)
    cursor.resume()
    for time in Log(log.times[rotated:]).since(cursor.since):
        if cursor.is_new(time):
            gap = gap or cursor.take_gap()
            shown.append(time)
    newest, left = max(log.times[:cut], default=0), log.times[rotated:]
    if newest in log.times[rotated:cut]:
        assert not gap
        assert shown == log.times
    elif left and min(left) > newest > 0:
        assert gap


def test_only_the_last_moments_are_asked_for_again():
    cursor = LogCursor()
    asked = [cursor.since]
    for milliseconds in (700, 1200, 1700):
        assert cursor.is_new(START + milliseconds * MILLISECOND)
        asked.append(cursor.since)
    assert asked == [None, START, START, START + SECOND]


def test_a_clock_set_back_loses_no_line():
    cursor = LogCursor()
    assert cursor.is_new(START)
    cursor.resume()
    assert not cursor.is_new(START)
    assert cursor.is_new(START - 60 * SECOND)


def test_a_resumed_tail_does_not_begin_before_the_tail():
    cursor = LogCursor(from_first=True)
    assert cursor.is_new(START + 3)
    cursor.resume()
    assert [cursor.is_new(START + at) for at in range(6)] == [False, False, False, False, True, True]


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr("kfjob.cluster.cursor.MAX_TIMES", 100)
    cursor = LogCursor()
    assert all(cursor.is_new(START + at) for at in range(1000))
    cursor.resume()
    assert not any(cursor.is_new(START + at) for at in range(1000))
    assert cursor.is_new(START + 1000)
    assert not cursor.take_gap()
