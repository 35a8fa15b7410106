"""Which lines of a log were shown already: resuming a log without losing a line or showing one twice. Pure.

`sinceTime` reaches the kubelet in whole seconds, many lines may carry one time, and the two streams of a container may be
written a little out of order. So the last moments are asked for again, and lines are recognised by their exact times.
"""

from __future__ import annotations

from collections import Counter, deque

DISORDER = 500_000_000
"""Nanoseconds: a line may be written so much later than a younger one (each of stdout and stderr has its own writer)."""
MOST_REMEMBERED = 50_000
"""Times kept, some MB: a bound for containers that write more than 50000 lines in half a second."""

SECOND = 1_000_000_000


class LogCursor:
    """How far one container's log was read."""

    def __init__(self, *, from_first: bool = False) -> None:
        """Nothing was read. `from_first`: reading begins within the log, what is older than the first line is not wanted."""
        self._from_first = from_first
        self.newest: int | None = None
        self._recent: deque[int] = deque()  # times of shown lines not older than `newest - DISORDER`, in order of the log
        self._floor = 0  # lines up to this time are known to be shown
        self._expected: Counter[int] = Counter()  # lines that a resumed log will show again; all that follow them are new
        self._awaited = 0  # how many
        self._cut = -1  # time of the newest line shown before it was resumed
        self._met_cut = True
        self._repeating = False  # lines may come that were shown before

    @property
    def since(self) -> int | None:
        """From when to ask for lines, in nanoseconds; None: from the beginning."""
        return None if self.newest is None else (self.newest - DISORDER) // SECOND * SECOND

    def resume(self, *, same: bool = True) -> None:
        """The log is opened again, from `since`. With `same` False it is the log of the container's next run."""
        self._expected, self._awaited = Counter(self._recent), len(self._recent)
        self._cut = -1 if self.newest is None else self.newest
        self._met_cut = self.newest is None or not same
        self._repeating = self.newest is not None
        if self.newest is not None:
            self._floor = max(self._floor, self.newest - DISORDER - 1)

    def is_new(self, time: int) -> bool:
        """Whether the next line, of `time`, was not shown before; if so, it counts as shown."""
        if (self._awaited or not self._met_cut) and time <= self._cut:
            if time <= self._floor:
                return False
            if self._expected[time] > 0:
                self._expected[time] -= 1
                self._awaited -= 1
                self._met_cut = self._met_cut or time == self._cut
                return False
        self._remember(time)
        return True

    def may_repeat(self, time: int | None) -> bool:
        """Whether the next line, of `time`, may have been read before."""
        self._repeating = self._repeating and (time is None or time <= self._cut)
        return self._repeating

    def pass_by(self, time: int) -> None:
        """The next line, of `time`, is not one that must be shown exactly once."""
        self._met_cut = self._met_cut or time == self._cut
        self._advance(time)

    @property
    def gap(self) -> bool:
        """Whether the resumed log does not reach back to the last line that was shown. True once, before the first new line."""
        lost, self._met_cut = not self._met_cut, True
        return lost

    def _remember(self, time: int) -> None:
        self._recent.append(time)
        self._advance(time)
        if len(self._recent) > MOST_REMEMBERED:
            self._floor = max(self._floor, self._recent.popleft())

    def _advance(self, time: int) -> None:
        if self._from_first and self.newest is None:
            self._floor = time - 1
        if self.newest is None or time > self.newest:
            self.newest = time
        oldest = self.newest - DISORDER
        while self._recent and self._recent[0] < oldest:
            self._recent.popleft()
