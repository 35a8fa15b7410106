"""Line charts as inline SVG: they need no script. A script reads the points off them for a cursor where there is one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kfjob.report.markup import Html, element, text
from kfjob.report.numbers import marks, number

LEFT, RIGHT, TOP, BOTTOM = 58, 14, 14, 30

Points = Sequence[tuple[float, float | None]]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve."""

    name: str
    points: Points
    style: str  # a class of the style sheet
    told: bool = True  # by the cursor


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """From values to places."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin), 1)


def chart(title: str, lines: Sequence[Line], *, unit: str = "", mark: str = "", wide: bool = False) -> Html:
    """The curves over their steps; "" if there is nothing to draw. `mark` stands at the right of the title.

    A `wide` one is as wide as the page, and drawn a second time for narrow windows, where its words would be too small.
    """
    if len({x for x, _ in _known(lines)}) < 2:  # noqa: PLR2004 - a line has two ends
        return ""
    heading = element("h3", text(title), element("small", text(unit)) if unit else "")
    legend = _legend(lines) if len(lines) > 1 else ""
    head = element("div", heading, legend, element("output", text(mark), data_rest=mark), class_="charthead")
    sizes = {"chart wide": (1080, 300), "chart narrow": (520, 260)} if wide else {"chart": (520, 220)}
    drawn = (_picture(title, lines, look, size) for look, size in sizes.items())
    return element("figure", head, *drawn, class_="card")


def _picture(title: str, lines: Sequence[Line], look: str, size: tuple[int, int]) -> Html:
    width, height = size
    known = _known(lines)
    low, high = _bounds([y for _, y in known if y is not None])
    across = _Scale(low=min(x for x, _ in known), high=max(x for x, _ in known), begin=LEFT, end=width - RIGHT)
    up = _Scale(low=low, high=high, begin=height - BOTTOM, end=TOP)
    drawn = [element("g", *_axes(across, up, width, height), class_="axes", aria_hidden="true")]
    drawn += [path for line in lines for path in _paths(line, across, up)]
    drawn.append(element("line", class_="cursor", y1=TOP, y2=height - BOTTOM))
    said = (
        f"{title}: from {number(known[0][1])} to {number(known[-1][1])} in steps {number(across.low)} to {number(across.high)}"
    )
    data = {line.name: list(_places(line, across, up)) for line in lines if line.told}
    box = f"0 0 {width} {height}"
    return element("svg", *drawn, viewBox=box, role="img", aria_label=said, class_=look, data_points=json.dumps(data))


def _known(lines: Sequence[Line]) -> list[tuple[float, float | None]]:
    return [point for line in lines for point in line.points if _finite(point[1])]


def _axes(across: _Scale, up: _Scale, width: int, height: int) -> Iterator[Html]:
    for value in marks(up.low, up.high):
        y = up(value)
        yield element("line", x1=LEFT, x2=width - RIGHT, y1=y, y2=y, class_="grid")
        yield element("text", text(number(value)), x=LEFT - 8, y=y + 4, text_anchor="end")
    for value in marks(across.low, across.high, 6):
        x = across(value)
        anchor = "end" if x > width - RIGHT - 20 else "middle"
        yield element("text", text(number(value)), x=x, y=height - BOTTOM + 18, text_anchor=anchor)
    yield element("line", x1=LEFT, x2=width - RIGHT, y1=height - BOTTOM, y2=height - BOTTOM, class_="base")


def _paths(line: Line, across: _Scale, up: _Scale) -> Iterator[Html]:
    """One path for each run of finite values: a NaN is a gap, and is marked at the bottom."""
    run: list[str] = []
    for x, y in (*line.points, (0.0, None)):
        if y is not None and _finite(y):
            run.append(f"{across(x)} {up(y)}")
            continue
        if len(run) == 1:
            run.append(run[0])
        if run:
            yield element("path", d="M" + "L".join(run), class_=f"line {line.style}")
        if y is not None and line.told:
            yield element("path", d=f"M{across(x)} {up.begin}v-8", class_="notfinite")
        run = []


def _places(line: Line, across: _Scale, up: _Scale) -> Iterator[tuple[float, float, str, str]]:
    """What the cursor needs of each point: where it is, and what it says."""
    for x, y in line.points:
        if y is not None and _finite(y):
            yield across(x), up(y), f"{x:g}", number(y)


def _legend(lines: Sequence[Line]) -> Html:
    return element(
        "span",
        *(element("span", text(line.name), class_=f"key {line.style}") for line in lines),
        class_="legend",
        aria_hidden="true",
    )


def _bounds(values: list[float]) -> tuple[float, float]:
    """From the lowest to the highest, a little more; a spike that is far above all the rest is cut."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    usual = ordered[int(len(ordered) * 0.99)]
    if len(ordered) > 20 and high - low > 6 * (usual - low) > 0:  # noqa: PLR2004 - fewer say nothing of what is usual
        high = usual + (usual - low) * 0.1
    if high == low:
        return low - (abs(low) * 0.1 or 1), high + (abs(high) * 0.1 or 1)
    room = (high - low) * 0.05
    return (low - room if low < 0 or low > room else 0.0), high + room


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
