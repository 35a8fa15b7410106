"""When a line was printed, where nobody put a time in front of it: the time in the line, or in the last line that has one."""

from __future__ import annotations

import re
from collections import deque

from msgspec import Struct

from kfjob.observe.lines import glog, in_year_of, rfc3339

REMEMBERED = 200
"""Lines back in which a time is looked for."""

_FULL = re.compile(r"(\d{4}-\d\d-\d\d)[ T_](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)")
_GLOG = re.compile(r"(?<![A-Za-z])[IWEFCV](\d{4}) (\d\d:\d\d:\d\d\.\d+)")
_WITHIN = 100
"""A time stands at the beginning of a line."""


class Moment(Struct, frozen=True):
    """A time as well as it is known."""

    time: int | None = None
    yearless: int | None = None  # glog's own, which has no year
    exact: bool = True  # False: it is that of a line before

    def resolve(self, near: int | None) -> int | None:
        """Nanoseconds since the epoch; a time without a year is put next to `near`."""
        if self.time is not None or self.yearless is None:
            return self.time
        return in_year_of(self.yearless, near)


def written(text: str) -> Moment | None:
    """The time that stands in the line itself; it is taken as UTC."""
    if found := _FULL.search(text, 0, _WITHIN):
        return Moment(time=rfc3339(f"{found[1]} {found[2]}"))
    if found := _GLOG.search(text, 0, _WITHIN):
        return Moment(yearless=glog(found[1], found[2]))
    return None


class Clock:
    """The newest lines of one container, for the time that they tell."""

    def __init__(self) -> None:
        """No line was seen."""
        self._lines: deque[tuple[int | None, str]] = deque(maxlen=REMEMBERED)

    def pass_by(self, time: int | None, text: str) -> None:
        """One more line."""
        self._lines.append((time, text))

    def now(self) -> Moment:
        """The time of the last line."""
        for back, (time, text) in enumerate(reversed(self._lines)):
            moment = Moment(time=time) if time is not None else written(text)
            if moment:
                return Moment(moment.time, moment.yearless, exact=back == 0)
        return Moment(exact=False)

    @property
    def last(self) -> str:
        """The last line that says anything."""
        return next((text.strip() for _, text in reversed(self._lines) if text.strip()), "")
