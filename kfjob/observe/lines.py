"""Log lines as text: colours, carriage returns, and the times and sources that log tools leave in front of them."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime

SECOND = 1_000_000_000
"""Nanoseconds in a second: every time in `observe` is an integer in nanoseconds since the epoch, UTC."""

YEARLESS = 2000
"""The year in which times without one (glog's) are counted; a leap year, so that every day of a year exists in it."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (?:(?:stdout|stderr) [FP] )?")
_SOURCE = re.compile(r"\[pod/[^\]\s]+\] ")  # kubectl logs --prefix


def clean(text: str) -> tuple[str, int | None]:
    """The line without colours, line end, and what kubectl or containerd put before it; and the time they put there."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text = text.rstrip("\r\n")
    time = None
    while found := _SOURCE.match(text) or _STAMP.match(text):
        if found.re is _STAMP:
            time = rfc3339(found[1])
        text = text[found.end() :]
    return text, time


def rfc3339(text: str) -> int | None:
    """Nanoseconds of `2026-11-21T06:18:58.464000123Z`; without a zone, and with a space for the T, it is taken as UTC."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\d*(Z|[+-]\d\d:\d\d)?", text)
    if not found:
        return None
    day, clock, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{zone if zone and zone != 'Z' else '+00:00'}")
    except ValueError:
        return None
    return int(moment.timestamp()) * SECOND + int((fraction or "").ljust(9, "0"))


def glog(date: str, clock: str) -> int | None:
    """Nanoseconds of glog's `1121`, `06:18:58.464000`, in the year `YEARLESS`."""
    return rfc3339(f"{YEARLESS}-{date[:2]}-{date[2:]} {clock}")


def in_year_of(yearless: int, near: int | None) -> int:
    """A glog time in the year that brings it closest to `near`; unchanged when there is nothing to be near to."""
    if near is None:
        return yearless
    moment = datetime.fromtimestamp(yearless // SECOND, UTC)
    around = datetime.fromtimestamp(near // SECOND, UTC).year
    choices = []
    for year in (around - 1, around, around + 1):
        day = min(moment.day, monthrange(year, moment.month)[1])
        choices.append(int(moment.replace(year=year, day=day).timestamp()) * SECOND + yearless % SECOND)
    return min(choices, key=lambda choice: abs(choice - near))
