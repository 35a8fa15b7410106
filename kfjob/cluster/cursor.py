"""Which lines of a log were yielded already: resume a log without losing a line or repeating one. Pure.

`sinceTime` reaches the kubelet in whole seconds, several lines may have the same timestamp, and the two streams of a container
may be written slightly out of order. So a resumed log repeats its last moments, and exact timestamps identify the lines.
"""

from __future__ import annotations

from collections import Counter, deque

from kfjob.base.units import SECOND

DISORDER = 500_000_000
"""Nanoseconds by which a line may come after a newer one: stdout and stderr have a writer each."""
MAX_TIMES = 50_000
"""Timestamps in memory, for containers that write more than 50000 lines in half a second; they take some MB."""


class LogCursor:
    """How far one container's log was read."""

    def __init__(self, *, from_first: bool = False) -> None:
        """Begin with no line read. `from_first`: the log begins in its middle; lines older than its first line are not new."""
        self._from_first = from_first
        self.newest: int | None = None
        self._recent: deque[int] = deque()  # times of read lines since `newest - DISORDER`, in the order of the log
        self._floor = 0  # all lines up to this time were read
        self._expected: Counter[int] = Counter()  # times of the lines that a resumed log will repeat; later lines are new
        self._pending = 0  # the number of expected lines
        self._cut = -1  # time of the newest line before the log was resumed
        self._reached_cut = True
        self._repeating = False  # lines read before may come again

    @property
    def since(self) -> int | None:
        """The time from which to request lines, in nanoseconds; None: from the beginning."""
        return None if self.newest is None else (self.newest - DISORDER) // SECOND * SECOND

    def resume(self, *, same: bool = True) -> None:
        """Prepare for the log from `since`. With `same` False it is the log of the container's next run."""
        self._expected, self._pending = Counter(self._recent), len(self._recent)
        self._cut = -1 if self.newest is None else self.newest
        self._reached_cut = self.newest is None or not same
        self._repeating = self.newest is not None
        if self.newest is not None:
            self._floor = max(self._floor, self.newest - DISORDER - 1)

    def is_new(self, time: int) -> bool:
        """Return whether the next line, of `time`, was not read before; a new line then counts as read."""
        if (self._pending or not self._reached_cut) and time <= self._cut:
            if time <= self._floor:
                return False
            if self._expected[time] > 0:
                self._expected[time] -= 1
                self._pending -= 1
                self._reached_cut = self._reached_cut or time == self._cut
                return False
        self._remember(time)
        return True

    def may_repeat(self, time: int | None) -> bool:
        """Return whether the next line, of `time`, may have been read before."""
        self._repeating = self._repeating and (time is None or time <= self._cut)
        return self._repeating

    def pass_by(self, time: int) -> None:
        """Advance to the next line, of `time`, which may come more than once."""
        self._reached_cut = self._reached_cut or time == self._cut
        self._advance(time)

    def take_gap(self) -> bool:
        """Return whether the resumed log begins after the last line read: true once, before the first new line."""
        lost, self._reached_cut = not self._reached_cut, True
        return lost

    def _remember(self, time: int) -> None:
        self._recent.append(time)
        self._advance(time)
        if len(self._recent) > MAX_TIMES:
            self._floor = max(self._floor, self._recent.popleft())

    def _advance(self, time: int) -> None:
        if self._from_first and self.newest is None:
            self._floor = time - 1
        if self.newest is None or time > self.newest:
            self.newest = time
        oldest = self.newest - DISORDER
        while self._recent and self._recent[0] < oldest:
            self._recent.popleft()
