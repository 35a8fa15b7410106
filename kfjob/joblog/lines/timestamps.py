"""Timestamps in log lines, in every format that torch, kubectl and containerd write.

Every time in `joblog` is an integer, nanoseconds since the epoch in UTC. glog writes no year, so its times need a reference.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime
from functools import lru_cache

from msgspec import Struct

from kfjob.base.units import SECOND, check_time

GLOG_YEAR = 2000
"""Year that stands in for the missing one in a glog time; a leap year, so that 29 February exists in it."""

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\d*(Z|[+-]\d\d:\d\d)?")


class Timestamp(Struct, frozen=True):
    """The time of a line, as precisely as the log gives it."""

    time: int | None = None
    yearless: int | None = None  # a glog time in the year `GLOG_YEAR`
    exact: bool = True  # False: the time comes from an earlier line

    def resolve(self, near: int | None) -> int | None:
        """Return nanoseconds since the epoch; a time without a year gets the year that brings it closest to `near`."""
        if self.time is not None or self.yearless is None:
            return self.time
        return resolve_year(self.yearless, near)

    def since(self, earlier: Timestamp) -> int | None:
        """Return the nanoseconds since an earlier line; None if a time is not exact, or only one of them has a year."""
        if not self.exact or not earlier.exact:
            return None
        if self.time is not None and earlier.time is not None:
            return self.time - earlier.time
        if self.yearless is not None and earlier.yearless is not None:
            return self.yearless - earlier.yearless
        return None


def parse_rfc3339(text: str) -> int | None:
    """Return the nanoseconds of `2026-11-21T06:18:58.464000123Z`, None if the text is not a time between 1970 and 2262.

    A space may replace the `T`. A time without a zone is taken as UTC.
    """
    match = _RFC3339.fullmatch(text)
    if not match:
        return None
    day, clock, fraction, zone = match.groups()
    seconds = _parse_second(day, clock, zone if zone and zone != "Z" else "+00:00")
    if seconds is None:
        return None
    nanoseconds = int(fraction.ljust(9, "0")) if fraction else 0
    return check_time(seconds * SECOND + nanoseconds)


@lru_cache(maxsize=64)  # programs print many lines in a second
def _parse_second(day: str, clock: str, zone: str) -> int | None:
    try:
        return int(datetime.fromisoformat(f"{day}T{clock}{zone}").timestamp())
    except (ValueError, OverflowError):
        return None


def parse_glog(date: str, clock: str) -> int | None:
    """Return the nanoseconds of a glog time (`1121`, `06:18:58.464000`) in the year `GLOG_YEAR`."""
    return parse_rfc3339(f"{GLOG_YEAR}-{date[:2]}-{date[2:]} {clock}")


def has_year(time: int) -> bool:
    """Return whether the year is known; torch is younger than `GLOG_YEAR`."""
    return datetime.fromtimestamp(time // SECOND, UTC).year != GLOG_YEAR


def resolve_year(yearless: int, near: int | None) -> int:
    """Return a glog time in the year that brings it closest to `near`; unchanged if `near` is None."""
    if near is None:
        return yearless
    moment = datetime.fromtimestamp(yearless // SECOND, UTC)
    near_year = datetime.fromtimestamp(near // SECOND, UTC).year
    candidates = []
    for year in (near_year - 1, near_year, near_year + 1):
        day = min(moment.day, monthrange(year, moment.month)[1])
        candidates.append(int(moment.replace(year=year, day=day).timestamp()) * SECOND + yearless % SECOND)
    return min(candidates, key=lambda candidate: abs(candidate - near))
