"""The values that the templates show: the tiles, the cards of the diagnosis, the charts and the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from kfjob.base.text import plural
from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.diagnosis import Diagnosis, Issue
from kfjob.joblog.diagnose.warnings import DistinctWarning
from kfjob.joblog.events import JobPhase
from kfjob.joblog.master.evidence import Master, format_ranks
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.report.charts import Chart, Curve, lay_out_chart
from kfjob.report.numbers import format_duration, format_number, format_time
from kfjob.report.templating import make_environment

MAX_WARNINGS = 100
"""Warnings in a report."""
MAX_EVENTS = 60
"""Cluster events in a report."""

CellKind = Literal["text", "mono", "time", "code", "prose", "long", "long prose", "long code"]


class Badge(Struct, frozen=True, kw_only=True):
    """The state of the job beside its name."""

    text: str
    css_class: str


class Tile(Struct, frozen=True, kw_only=True):
    """One figure at the top of the page."""

    name: str
    value: str
    note: str = ""
    css_class: str = ""


class Cell(Struct, frozen=True, kw_only=True):
    """One cell of a table, with the way in which the template shows it."""

    text: str
    kind: CellKind = "text"


class Table(Struct, frozen=True, kw_only=True):
    """A table with the title of its section."""

    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


class Card(Struct, frozen=True, kw_only=True):
    """One issue in full."""

    title: str
    rule: str
    location: str
    evidence: str
    cause: str
    remedy: str
    css_class: str


class DiagnosisSection(Struct, frozen=True, kw_only=True):
    """The diagnosis: the causes in full, all else as tables."""

    failed: bool
    remark: str
    last_lines: str
    causes: Sequence[Card]
    consequences: Table | None
    other_causes: Sequence[Card]
    warnings: Sequence[Card]
    lists: Sequence[Table]


def choose_badge(view: JobView, diagnosis: Diagnosis) -> Badge:
    """Return the badge of the job's phase."""
    phase = view.phase
    if phase is JobPhase.SUCCEEDED:
        css_class = "good"
    elif phase is JobPhase.FAILED or not diagnosis.healthy:
        css_class = "bad"
    elif phase is None or view.pod_problems or phase in {JobPhase.STOPPED, JobPhase.SUSPENDED}:
        css_class = "doubt"
    else:
        css_class = "plain"
    return Badge(text=str(phase or "Unknown"), css_class=css_class)


def make_tiles(view: JobView) -> Iterator[Tile]:
    """Yield the figures that are known."""
    yield from _training_tiles(view)
    if view.job and view.job.created:
        created, end = view.job.created, view.job.ended or view.now or view.job.created
        note = f"{format_duration(view.eta)} left" if view.running and view.eta is not None else f"since {format_time(created)}"
        yield Tile(name="Time", value=format_duration((end - created) / SECOND), note=note)
    if view.pods:
        restarts = plural(sum(pod.restarts for pod in view.pods.values()), "restart")
        yield Tile(name="Pods", value=str(len(view.pods)), note=f"{restarts}, {plural(len(view.rounds), 'round')}")
    if isinstance(view.master, Master):
        source = f"lines like `{view.training.template}`" if view.training.template else ""
        note = _join(str(view.master.confidence), source)
        yield Tile(name="Pod with progress", value=view.master.pod, note=note, css_class="name")
    if view.checkpoint:
        yield Tile(name="Newest checkpoint", value=view.checkpoint.name, note=view.checkpoint.path, css_class="name")


def _training_tiles(view: JobView) -> Iterator[Tile]:
    training = view.training
    if training.step is not None:
        total = f"of {format_number(view.total)}" if view.total else ""
        epoch = f"epoch {format_number(training.epoch)}" if training.epoch is not None else ""
        yield Tile(name="Step", value=format_number(training.step), note=_join(total, epoch))
    if training.loss is not None:
        place = f"at step {training.first_step}, where the log begins" if training.begins_late else "at the start"
        yield Tile(name="Loss", value=format_number(training.loss), note=f"{format_number(training.first_loss)} {place}")
    if training.speed is not None:
        tokens = training.tokens_per_second
        rate = f"{format_number(tokens)} tokens/s" if tokens is not None else ""
        mfu = f"MFU {100 * training.mfu:.1f} %" if training.mfu is not None else ""
        yield Tile(name="Speed", value=format_number(training.speed), note=_join(training.unit, rate, mfu))
    if setbacks := training.skipped + training.rolled_back:
        note = f"{plural(training.skipped, 'step')} skipped, {plural(training.rolled_back, 'rollback')}"
        yield Tile(name="Setbacks", value=str(setbacks), note=note)


def make_diagnosis(diagnosis: Diagnosis) -> DiagnosisSection:
    """Return the cards and tables of the diagnosis."""
    lists = (
        _issue_table("Recovered: the job continued", diagnosis.recovered),
        _issue_table("Harmless", diagnosis.harmless),
    )
    return DiagnosisSection(
        failed=bool(diagnosis.failed),
        remark=diagnosis.remark,
        last_lines="\n".join(f"{pod}  {text}" for pod, texts in diagnosis.last_lines for text in texts),
        causes=[_card(diagnosis.first_cause, "first cause")] if diagnosis.first_cause else [],
        consequences=_issue_table("Consequences", diagnosis.consequences),
        other_causes=[_card(issue, "further cause") for issue in diagnosis.other_causes],
        warnings=[_card(issue, "warning", css_class="warning") for issue in diagnosis.warnings],
        lists=[table for table in lists if table],
    )


def _card(issue: Issue, kind: str, *, css_class: str = "") -> Card:
    return Card(
        title=issue.title[:1].upper() + issue.title[1:],
        rule=issue.rule,
        location=_join(kind, *_location(issue)),
        evidence="\n".join(issue.evidence),
        cause=issue.cause,
        remedy=issue.remedy,
        css_class=css_class,
    )


def _location(issue: Issue) -> Iterator[str]:
    if issue.pod:
        yield f"pod {issue.pod}"
    if issue.rank is not None:
        yield f"rank {issue.rank}"
    if issue.line:
        yield f"line {issue.line}" + (" of the previous container" if issue.previous else "")
    if issue.time is not None:
        yield format_time(issue.time)
    if count := len([pod for pod in issue.pods if pod != issue.pod]):
        yield f"and {plural(count, 'more pod')}"


def _issue_table(title: str, issues: Sequence[Issue]) -> Table | None:
    if not issues:
        return None
    rows = [
        (
            Cell(text=str(issue.count)),
            Cell(text=issue.title, kind="prose"),
            Cell(text=str(len(issue.pods))),
            Cell(text=issue.rule, kind="code"),
        )
        for issue in issues
    ]
    return Table(title=f"{title} ({len(issues)})", caption=title, header=("Count", "Issue", "Pods", "Rule"), rows=rows)


def make_charts(training: Training) -> list[Chart]:
    """Return the charts that have curves."""
    samples = training.curve
    loss = Curve(name="loss", points=[(sample.step, sample.loss) for sample in samples], css_class="raw")
    smoothed = Curve(name="smoothed", points=[(sample.step, sample.smoothed) for sample in samples], css_class="main")
    speed = Curve(name="speed", points=[(sample.step, sample.speed) for sample in samples], css_class="main")
    rate = Curve(name="lr", points=[(sample.step, sample.lr) for sample in samples], css_class="main")
    evaluation = Curve(name="loss", points=[(point.step, point.loss) for point in training.evaluations], css_class="main")
    change = f"{format_number(training.first_loss)} → {format_number(training.loss)}" if training.loss is not None else ""
    charts = (
        lay_out_chart("Loss", [loss, smoothed], note=change, wide=True),
        lay_out_chart("Evaluation loss", [evaluation], note=format_number(training.evaluation_loss)),
        lay_out_chart("Speed", [speed], unit=training.unit, note=format_number(training.speed)),
        lay_out_chart("Learning rate", [rate], note=format_number(training.lr)),
    )
    return [chart for chart in charts if chart]


def render_curve(training: Training, *, redact: Callable[[str], str] = str) -> str:
    """Return the loss curve as an SVG picture without a style sheet, for a notebook; "" without a curve."""
    chart = next((chart for chart in make_charts(training) if chart.title == "Loss"), None)
    if chart is None:
        return ""
    template = make_environment(redact).get_template("curve.html")
    return template.render(picture=chart.pictures[-1], colours={"line raw": "#9db8e8", "line main": "#2563c9"})


def make_pod_table(view: JobView) -> Table | None:
    """Return a row for each pod."""
    if not view.pods:
        return None
    rows = []
    for pod in view.pods.sort():
        state = pod.state
        exit_code = None if state is None else state.exit_code
        rows.append(
            (
                Cell(text=pod.name, kind="mono"),
                Cell(text=state.status if state else "unknown"),
                Cell(text=str(pod.restarts)),
                Cell(text="–" if exit_code is None else str(exit_code)),
                Cell(text=format_ranks(pod.global_ranks) or "–"),
                Cell(text=pod.node or "–", kind="mono"),
                Cell(text=format_time(state.started if state else None), kind="time"),
                Cell(text=state.message if state else "", kind="long prose"),
            )
        )
    header = ("Pod", "State", "Restarts", "Exit code", "Ranks", "Node", "Started", "Message")
    return Table(title="Pods", caption="Pods", header=header, rows=rows)


def make_event_table(view: JobView) -> Table | None:
    """Return a row for each of the newest events of the cluster."""
    rows = [
        (
            Cell(text=format_time(event.time), kind="mono"),
            Cell(text=f"{event.kind} {event.name}", kind="mono"),
            Cell(text=event.reason),
            Cell(text=event.message, kind="long"),
            Cell(text=str(event.count)),
        )
        for event in view.cluster_events[-MAX_EVENTS:]
    ]
    header = ("Last seen", "Object", "Reason", "Message", "Count")
    return Table(title="Cluster events", caption="Cluster events", header=header, rows=rows) if rows else None


def make_warning_table(warnings: Sequence[DistinctWarning], omitted_lines: int) -> Table | None:
    """Return a row for each distinct warning; `omitted_lines` is the number of lines with further warnings."""
    rows = [
        (
            Cell(text=str(warning.count)),
            Cell(text=str(len(warning.pods))),
            Cell(text=format_ranks(tuple(sorted(warning.ranks))) or "–"),
            Cell(text=f"harmless ({warning.rule})" if warning.harmless else warning.rule or "–"),
            Cell(text=warning.text, kind="long code"),
        )
        for warning in warnings[:MAX_WARNINGS]
    ]
    distinct = len(warnings) - MAX_WARNINGS
    more = [
        plural(distinct, "more distinct warning") if distinct > 0 else "",
        plural(omitted_lines, "more line") if omitted_lines else "",
    ]
    note = "and " + ", ".join(filter(None, more)) if any(more) else ""
    header = ("Count", "Pods", "Ranks", "Rule", "Warning")
    return Table(title="Warnings", caption="Warnings", header=header, rows=rows, note=note) if rows else None


def _join(*parts: str) -> str:
    return " · ".join(filter(None, parts))
