"""The geometry of line charts. `templates/charts.html` draws them as SVG; `report.js` reads their points for the cursor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from msgspec import Struct

from kfjob.joblog.lines.line_text import MAX_NUMBER
from kfjob.report.numbers import choose_ticks, format_number

LEFT, RIGHT, TOP, BOTTOM = 58, 14, 14, 30
SIZES = {"chart": (520, 220)}
WIDE_SIZES = {"chart wide": (1080, 300), "chart narrow": (520, 260)}
"""A wide chart spans the page. Narrow windows show its second picture, because the text of the first would be too small."""

Points = Sequence[tuple[float, float | None]]


class Curve(Struct, frozen=True, kw_only=True):
    """One curve of a chart."""

    name: str
    points: Points
    css_class: str


class AxisTick(Struct, frozen=True, kw_only=True):
    """One tick of an axis."""

    position: float
    text: str
    anchor: str = "end"


class Path(Struct, frozen=True, kw_only=True):
    """One SVG path."""

    data: str
    css_class: str


class Picture(Struct, frozen=True, kw_only=True):
    """A chart at one size."""

    css_class: str
    width: int
    height: int
    label: str
    points: str  # JSON: for each curve the points [x, y, step, value]
    x_ticks: Sequence[AxisTick]
    y_ticks: Sequence[AxisTick]
    paths: Sequence[Path]

    left = LEFT
    top = TOP

    @property
    def right(self) -> int:
        """The right end of the x axis."""
        return self.width - RIGHT

    @property
    def bottom(self) -> int:
        """The height of the x axis."""
        return self.height - BOTTOM


class Chart(Struct, frozen=True, kw_only=True):
    """A figure: a title, a legend and the same curves at one or two sizes."""

    title: str
    unit: str
    note: str  # shown at the right of the title while no cursor is shown
    curves: Sequence[Curve]
    pictures: Sequence[Picture]


class _Scale(Struct, frozen=True, kw_only=True):
    """Maps values to positions."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)


def lay_out_chart(title: str, curves: Sequence[Curve], *, unit: str = "", note: str = "", wide: bool = False) -> Chart | None:
    """Return the chart of the curves over their steps; None if there are fewer than two steps."""
    if len({x for x, _ in _finite_points(curves)}) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    sizes = WIDE_SIZES if wide else SIZES
    pictures = [_lay_out_picture(title, curves, css_class, size) for css_class, size in sizes.items()]
    return Chart(title=title, unit=unit, note=note, curves=curves, pictures=pictures)


def _lay_out_picture(title: str, curves: Sequence[Curve], css_class: str, size: tuple[int, int]) -> Picture:
    width, height = size
    points = _finite_points(curves)
    low, high = _bounds([y for _, y in points])
    x_scale = _Scale(low=min(x for x, _ in points), high=max(x for x, _ in points), start=LEFT, end=width - RIGHT)
    y_scale = _Scale(low=low, high=high, start=height - BOTTOM, end=TOP)
    first, last = format_number(points[0][1]), format_number(points[-1][1])
    steps = f"steps {format_number(x_scale.low)} to {format_number(x_scale.high)}"
    return Picture(
        css_class=css_class,
        width=width,
        height=height,
        label=f"{title}: from {first} to {last} in {steps}",
        points=json.dumps({curve.name: list(_cursor_points(curve, x_scale, y_scale)) for curve in curves}),
        x_ticks=list(_x_ticks(x_scale)),
        y_ticks=[AxisTick(position=y_scale(value), text=format_number(value)) for value in choose_ticks(low, high)],
        paths=[path for curve in curves for path in _paths(curve, x_scale, y_scale)],
    )


def _finite_points(curves: Sequence[Curve]) -> list[tuple[float, float]]:
    return [(x, y) for curve in curves for x, y in curve.points if y is not None and abs(y) <= MAX_NUMBER]


def _x_ticks(scale: _Scale) -> Iterator[AxisTick]:
    for value in choose_ticks(scale.low, scale.high, 6):
        position = scale(value)
        yield AxisTick(position=position, text=format_number(value), anchor="end" if position > scale.end - 20 else "middle")


def _paths(curve: Curve, x_scale: _Scale, y_scale: _Scale) -> Iterator[Path]:
    """Yield one path for each section of finite values. A NaN is a gap with a mark at the bottom."""
    section: list[str] = []
    for x, y in (*curve.points, (0.0, None)):
        if y is not None and abs(y) <= MAX_NUMBER:
            section.append(f"{x_scale(x)} {y_scale(y)}")
            continue
        if len(section) == 1:
            section.append(section[0])
        if section:
            yield Path(data="M" + "L".join(section), css_class=f"line {curve.css_class}")
        if y is not None:
            yield Path(data=f"M{x_scale(x)} {y_scale.start}v-8", css_class="notfinite")
        section = []


def _cursor_points(curve: Curve, x_scale: _Scale, y_scale: _Scale) -> Iterator[tuple[float, float, str, str]]:
    """Yield position, step and value of each point."""
    for x, y in curve.points:
        if y is not None and abs(y) <= MAX_NUMBER:
            yield x_scale(x), y_scale(y), f"{x:g}", format_number(y)


def _bounds(values: list[float]) -> tuple[float, float]:
    """Return the range of the y axis. A spike far above all other values is cut."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    usual = ordered[int(len(ordered) * 0.99)]
    if len(ordered) > 20 and high - low > 6 * (usual - low) > 0:  # noqa: PLR2004 - fewer values do not show what is usual
        high = usual + (usual - low) * 0.1
    if high == low:
        return low - (abs(low) * 0.1 or 1), high + (abs(high) * 0.1 or 1)
    margin = (high - low) * 0.05
    return (low - margin if low < 0 or low > margin else 0.0), high + margin
