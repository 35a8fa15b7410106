"""Several launches as one HTML page: their curves over each other, and tables of what differs.

Pure, and safe for text that jobs printed, as `page` is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from markupsafe import Markup
from msgspec import Struct

from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.diagnosis import Issue
from kfjob.joblog.progress.curve import mean_loss
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.progress_text import short_step_text, speed_text
from kfjob.report import assets
from kfjob.report.charts import Chart, Curve, Points, lay_out_chart
from kfjob.report.numbers import format_duration, format_number, format_time
from kfjob.report.sections import Cell, Table
from kfjob.report.templating import make_environment

STYLES = 8
"""Colours and dashes of curves in report.css; the next curve begins again."""

POINTS = 128
"""Points of a loss curve."""


class Series(Struct, frozen=True):
    """One launch."""

    name: str
    view: JobView
    first_cause: Issue | None = None


class ComparisonPage(Struct, frozen=True, kw_only=True):
    """Everything that a page shows."""

    series: Sequence[Series]
    differences: Sequence[tuple[str, Sequence[str]]] = ()  # a field of the specs, and its value in each
    created: int | None = None  # nanoseconds since the epoch
    version: str = ""  # kfjob's own


def render_comparison(page: ComparisonPage, *, redact: Callable[[str], str] = str) -> str:
    """Return the page as HTML; `redact` removes secrets from every text of it."""
    names = [series.name for series in page.series]
    differences = [(Cell(text=field, kind="code"), *(Cell(text=value or "–", kind="code") for value in values))
                   for field, values in page.differences]  # fmt: skip
    tables = [
        Table(title="Launches", caption="Launches", header=_HEADER, rows=[_row(series) for series in page.series]),
        Table(title="Differences of the specs", caption="Spec", header=("Field", *names), rows=differences),
    ]
    template = make_environment(redact).get_template("comparison.html")
    return template.render(
        title=", ".join(names),
        policy=assets.make_policy(),
        style=Markup(assets.read_style()),  # noqa: S704 - a file of this package
        script=Markup(assets.read_script()),  # noqa: S704 - a file of this package
        charts=list(_make_charts(page.series)),
        tables=[table for table in tables if table.rows],
        footer=f"Created {format_time(page.created)} by kfjob {page.version}.",
    )


def _make_charts(series: Sequence[Series]) -> Iterator[Chart]:
    """Yield the charts that have curves."""

    def lay_out(title: str, select: Callable[[Training], Points], unit: str = "") -> Chart | None:
        curves = [
            Curve(name=item.name, points=select(item.view.training), css_class=f"series s{index % STYLES}")
            for index, item in enumerate(series)
        ]
        return lay_out_chart(title, curves, unit=unit, wide=title == "Loss")

    units = {item.view.training.unit for item in series}
    charts = (
        lay_out("Loss", _average_losses),
        lay_out("Evaluation loss", lambda training: [(point.step, point.loss) for point in training.evaluations]),
        lay_out("Speed", lambda training: [(point.step, point.speed) for point in training.curve], ", ".join(sorted(units))),
        lay_out("Learning rate", lambda training: [(point.step, point.lr) for point in training.curve]),
    )
    yield from (chart for chart in charts if chart)


def _average_losses(training: Training) -> Points:
    """Return the curve with at most `POINTS` points, each the mean of its share: curves over each other must not be noisy."""
    size = -(-len(training.curve) // POINTS) or 1
    groups = [training.curve[start : start + size] for start in range(0, len(training.curve), size)]
    return [(group[-1].step, mean_loss(group)) for group in groups]


_HEADER = ("Launch", "State", "Started", "Duration", "Step", "Loss", "Speed", "First cause")


def _row(series: Series) -> tuple[Cell, ...]:
    view, job, training = series.view, series.view.job, series.view.training
    end = job and (job.ended or (view.now if view.running else None))
    seconds = (end - job.started) / SECOND if job and job.started and end else None
    return (
        Cell(text=series.name, kind="mono"),
        Cell(text=str(view.phase or "unknown")),
        Cell(text=format_time(job.started if job else None), kind="time"),
        Cell(text=format_duration(seconds)),
        Cell(text=short_step_text(view) or "–"),
        Cell(text=format_number(training.loss)),
        Cell(text=speed_text(training) or "–"),
        Cell(text=series.first_cause.title if series.first_cause else "–", kind="long prose"),
    )
