"""The speed that follows from a duration in a line, such as `dt 812.5ms` or `time 0.52s`.

The name of a duration seldom says what took that long. It is that of a step only where each line is one step further, and where
it is neither the time since the start, which grows with each line, nor the time that remains, which falls with each line.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from kfjob.joblog.progress.epochs import Position
from kfjob.joblog.progress.reading import Reading

_MAX_IMBALANCE = 3
"""Times that rises may outnumber falls, or falls rises; the time since the start of an epoch falls in each epoch once."""


class Durations(Struct, frozen=True, kw_only=True):
    """The newest duration, and what the lines so far say of its meaning."""

    newest: float | None = None  # seconds
    falls: int = 0  # lines with a shorter duration than the line before
    rises: int = 0
    rate: float | None = None  # steps per second, None while the meaning is not clear

    def advance(self, reading: Reading, before: Position, after: Position) -> Durations:
        """Return the state after a line of a step."""
        duration = reading.duration
        if duration is None or duration <= 0 or before.run_step is None or after.run_step is None:
            return replace(self, newest=duration)
        steps = after.run_step - before.run_step
        if steps != 1:
            return self if steps == 0 else Durations(newest=duration)
        falls, rises = self.falls, self.rises
        if self.newest is not None and after.base == before.base and after.epoch == before.epoch:
            falls += duration < self.newest
            rises += duration > self.newest
        is_of_step = reading.is_difference or 0 < max(falls, rises) <= _MAX_IMBALANCE * min(falls, rises)
        return Durations(newest=duration, falls=falls, rises=rises, rate=1 / duration if is_of_step else None)
