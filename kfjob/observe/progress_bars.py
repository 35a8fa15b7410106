"""Progress bars of tqdm: the count, the total and the speed of a bar, and the text around them.

Epoch 0:  10%|█         | 20/200 [00:10<01:30,  2.00it/s, loss=2.31]
description              count    times         rate      postfix
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kfjob.units import COUNT_SUFFIXES

MARKER = "%|"
_NUMBER = r"\d[\d,]*+(?:\.\d*+)?"
_COUNTS = re.compile(
    r"%\|[^|\r\n]{0,400}\|[ \t]*"
    rf"(?P<step>{_NUMBER})(?P<scale>[kKMGT]?)/(?P<total>{_NUMBER})(?P<total_scale>[kKMGT]?) \[(?P<rest>[^\r\n]*)"
)
_RATE = re.compile(rf"[^,\]]*,[ \t]*(?P<rate>{_NUMBER}|\?)(?P<scale>[kKMGT]?)(?P<unit>[A-Za-z_ ]{{0,24}}/[A-Za-z_]{{1,24}})")


class Bar(NamedTuple):
    """One state of a bar."""

    description: str  # the text before the percentage
    step: float
    total: float
    rate: float | None  # in `unit`; None before the first step
    unit: str  # such as `it/s` or `s/it`; "" if the bar has no rate
    postfix: str  # the values after the rate
    after: str  # the text after the bar


def find_bar(text: str) -> Bar | None:
    """Return the last bar in one state of a line; None if it has no bar."""
    place = text.rfind(MARKER)
    match = _COUNTS.match(text, place) if place >= 0 else None
    if match is None:
        return None
    start = place
    while start and (text[start - 1].isdigit() or text[start - 1] == "."):
        start -= 1
    inside, _, after = match["rest"].partition("]")
    rate = _RATE.match(inside)
    postfix = inside.partition(", ")[2]
    return Bar(
        description=text[:start],
        step=_scale(match["step"], match["scale"]),
        total=_scale(match["total"], match["total_scale"]),
        rate=_scale(rate["rate"], rate["scale"]) if rate and rate["rate"] != "?" else None,
        unit=rate["unit"].strip() if rate else "",
        postfix=postfix.partition(",")[2] if rate else postfix,
        after=after,
    )


def _scale(number: str, suffix: str) -> float:
    return float(number.replace(",", "")) * COUNT_SUFFIXES.get(suffix.lower(), 1)
