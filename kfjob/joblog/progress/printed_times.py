"""The times that programs print: the duration of a step, and the time that remains.

The name of a duration, such as `dt 812.5ms` or `time 0.52s`, seldom says what took that long. It is that of a step only where
each line is one step further, and where it is neither the time since the start, which grows with each line, nor the time that
remains, which falls with each line.

tqdm prints the time that remains in each bar (`[00:21<06:42`), other programs as `eta: 0:00:17`, `ETA 12s` or
`time left: 1h02m`. It is that of the epoch or of the whole run.
"""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.units import SECOND
from kfjob.joblog.progress.position import Position
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


_MARKERS = ("<", "eta", "ETA", "Eta", "left", "emain")
"""A line with a time that remains has one of these."""
_DAYS = r"(?:(?P<days>\d{1,4}) ?(?:days?|d),? ?)?"
_CLOCK = r"(?P<clock>\d{1,4}:\d\d(?::\d\d)?)(?:\.\d+)?(?![\d:])"
_BAR = re.compile(rf"\[[^\[\]<]{{1,24}}<{_DAYS}{_CLOCK}")
_UNITS = (
    r"(?:(?P<hours>@) ?(?:hours?|hrs?|h)[ ,]{0,2})?(?:(?P<minutes>@) ?(?:minutes?|mins?|m)(?![a-z])[ ,]{0,2})?"
    r"(?:(?P<seconds>@) ?(?:seconds?|secs?|s)(?![a-z/]))?(?![\d.:])"
).replace("@", r"\d{1,9}(?:\.\d+)?")
_NAMED = re.compile(
    r"(?i)(?<![a-z_])(?:eta|(?:time[ _])?(?:left|remaining)(?:[ _]time)?)[ \t\"']{0,3}[:=]?[ \t\"']{0,6}"
    rf"(?=\d){_DAYS}(?:{_CLOCK}|{_UNITS})"
)
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_ROUNDING = 2.0
"""Seconds that a printed time is larger than 0 at the end of an epoch because it is rounded."""


class Scope(StrEnum):
    """What a printed time is the rest of."""

    UNKNOWN = ""
    EPOCH = "epoch"
    RUN = "run"


class Remaining(Struct, frozen=True, kw_only=True):
    """The printed time that remains, and what the epochs so far say of the pace."""

    printed: float | None = None  # seconds, of the newest step
    time: int | None = None  # of the line with it
    evidence: Scope = Scope.UNKNOWN  # what the lines at the end of an epoch have shown
    scope: Scope = Scope.UNKNOWN
    epoch_start: tuple[int, int] | None = None  # step of the run and time of the first line of the epoch
    seconds_per_step: float | None = None  # over a whole epoch, with the work between two epochs
    first_epoch: tuple[float, int] | None = None  # epoch and time of the first line, where lines count epochs alone

    def advance(self, text: str, before: Position, after: Position, *, time: int | None, pace: float | None) -> Remaining:
        """Return the state after a line of a step. `pace`: seconds per step by other lines."""
        printed, of_bar = find_remaining(text)
        begins_epoch = after.per_epoch and after.base > before.base
        start, seconds_per_step = self.epoch_start, self.seconds_per_step
        if (start is None or begins_epoch) and time is not None and after.run_step is not None:
            if start is not None and after.run_step > start[0]:
                seconds_per_step = max(time - start[1], 0) / SECOND / (after.run_step - start[0])
            start = (after.run_step, time)
        evidence = self._weigh(printed, before, after, pace=pace, crosses=begins_epoch) or self.evidence
        scope = evidence
        if of_bar:
            scope = Scope.EPOCH if after.per_epoch else Scope.RUN
        elif not (after.per_epoch or after.is_first_epoch):
            scope = Scope.RUN
        return replace(
            self,
            printed=printed,
            time=time,
            evidence=evidence,
            scope=scope,
            epoch_start=start,
            seconds_per_step=seconds_per_step,
            first_epoch=self._find_first_epoch(before, after, time),
        )

    def _find_first_epoch(self, before: Position, after: Position, time: int | None) -> tuple[float, int] | None:
        if after.step is not None or after.epoch is None or time is None:
            return self.first_epoch
        goes_back = before.epoch is not None and after.epoch < before.epoch
        return (after.epoch, time) if self.first_epoch is None or goes_back else self.first_epoch

    def find_epochs(self, epoch: float | None, epochs: int | None, now: int | None) -> float | None:
        """Return the seconds from the line of an epoch to the end of the last one, by the times of such lines.

        The line of an epoch follows its end, as its loss is known then; the epochs may count from 0.
        """
        if self.first_epoch is None or epoch is None or epochs is None or now is None:
            return None
        first, start = self.first_epoch
        done = epoch + (first == 0 and epoch.is_integer())
        if epoch <= first or done > epochs:
            return None
        return (epochs - done) * (now - start) / SECOND / (epoch - first)

    def _weigh(self, printed: float | None, before: Position, after: Position, *, pace: float | None, crosses: bool) -> Scope:
        """Return what the printed time is the rest of, by what it is at the end of an epoch, or by the pace."""
        length, step = after.steps_per_epoch, after.step
        if printed is None or not length or step is None:
            return Scope.UNKNOWN
        if crosses and self.printed is not None and before.step is not None:
            share = max(length - before.step, 0) / max(length - step, 1)  # by which the rest of an epoch would be larger
            is_run = self.printed > printed * (1 + share) / 2
            return Scope.RUN if is_run else Scope.EPOCH
        if step == length and printed > _ROUNDING + (pace or 0.0):
            return Scope.RUN
        if self.evidence or pace is None or after.run_total is None or after.run_step is None or (after.epochs or 0) <= 1:
            return Scope.UNKNOWN
        of_epoch, of_run = (length - step) * pace, (after.run_total - after.run_step) * pace
        return Scope.RUN if printed**2 > of_epoch * of_run else Scope.EPOCH

    def find(self, scope: Scope, now: int | None) -> float | None:
        """Return the printed seconds that remain at the time of a later line of the same step; None if there are none."""
        if self.printed is None or self.scope is not scope:
            return None
        elapsed = 0 if self.time is None or now is None else max(now - self.time, 0)
        return max(self.printed - elapsed / SECOND, 0.0)


def find_remaining(text: str) -> tuple[float | None, bool]:
    """Return the seconds that a line says remain, and whether a progress bar says it; (None, False) without such a time."""
    if not any(marker in text for marker in _MARKERS):
        return None, False
    bars = list(_BAR.finditer(text)) if "<" in text else []
    if bars:
        return _to_seconds(bars[-1]), True
    match = _NAMED.search(text)
    return (_to_seconds(match), False) if match else (None, False)


def _to_seconds(match: re.Match[str]) -> float | None:
    groups = match.groupdict()
    if not any(groups.values()):
        return None  # a number without a unit
    seconds = float(groups["days"] or 0) * _DAY
    if groups["clock"]:
        parts = [int(part) for part in groups["clock"].split(":")]
        return seconds + sum(part * scale for part, scale in zip(reversed(parts), (1, _MINUTE, _HOUR), strict=False))
    hours, minutes, rest = (float(groups[name] or 0) for name in ("hours", "minutes", "seconds"))
    return seconds + hours * _HOUR + minutes * _MINUTE + rest
