"""The geometry of the timeline: a row for each pod, its container runs, the rendezvous rounds and the first cause.

`templates/timeline.html` draws it as SVG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from kfjob.base.text import plural
from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.pods.log_spans import LogSpan
from kfjob.joblog.pods.pod_view import PodView
from kfjob.joblog.view.job_view import JobView
from kfjob.report.numbers import choose_time_ticks, format_duration, format_number, format_time, format_time_of_day

WIDTH, LEFT, RIGHT, TOP, BOTTOM, ROW_HEIGHT = 1080, 190, 16, 34, 26, 22
FAILURE_WIDTH = 6
"""Width of the mark at the end of a run that failed."""
MAX_ROWS = 40
"""Rows of a timeline; with more pods, those with trouble come first."""
LEGEND = MappingProxyType(
    {
        "waits": "waiting",
        "before": "running before a restart",
        "runs": "running",
        "failed": "failed",
        "round": "rendezvous round",
        "cause": "first cause",
    }
)


class _Period(Struct, frozen=True):
    """A period in the life of a pod."""

    kind: str  # waits, runs, before or failed
    first: int
    last: int
    text: str


class TimeTick(Struct, frozen=True, kw_only=True):
    """One tick of the time axis."""

    x: float
    text: str


class Bar(Struct, frozen=True, kw_only=True):
    """One rectangle of a row."""

    x: float
    width: float
    css_class: str
    title: str
    rx: int = 0


class Row(Struct, frozen=True, kw_only=True):
    """One pod."""

    pod: str
    short_name: str
    y: int
    bars: Sequence[Bar]


class RoundMark(Struct, frozen=True, kw_only=True):
    """One rendezvous round."""

    x: float
    title: str
    number: str  # empty where the number of the round before is too near


class Cause(Struct, frozen=True, kw_only=True):
    """The mark of the first cause."""

    x: float
    y: int
    title: str


class Timeline(Struct, frozen=True, kw_only=True):
    """The picture and what stands below it."""

    label: str
    height: int
    ticks: Sequence[TimeTick]
    rounds: Sequence[RoundMark]
    rows: Sequence[Row]
    cause: Cause | None
    hidden: str  # the pods without a row, empty if every pod has one
    legend: Mapping[str, str] = field(default_factory=lambda: LEGEND)

    width = WIDTH
    left = LEFT
    top = TOP
    bar_height = ROW_HEIGHT - 9

    @property
    def bottom(self) -> int:
        """The height of the time axis."""
        return self.height - BOTTOM


class _Scale(Struct, frozen=True, kw_only=True):
    """Maps times to positions."""

    first: int
    last: int

    def __call__(self, time: int) -> float:
        return round(LEFT + (time - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT), 1)


def lay_out_timeline(view: JobView, diagnosis: Diagnosis, spans: Mapping[str, Mapping[str, LogSpan]]) -> Timeline | None:
    """Return the timeline; None where no time is known."""
    pods = {pod.name: list(_periods(view, pod, spans.get(pod.name, {}))) for pod in _select_pods(view, diagnosis)}
    times = [time for periods in pods.values() for period in periods for time in (period.first, period.last)]
    times += (
        [time for round_ in view.rounds if (time := round_.first_line.resolve_time(view.reference_time)) is not None]
        if times
        else []
    )
    if not times or max(times) <= min(times):
        return None
    scale = _Scale(first=min(times), last=max(times))
    duration = format_duration((scale.last - scale.first) / SECOND)
    return Timeline(
        label=f"Timeline of {plural(len(pods), 'pod')} over {duration}, {plural(len(view.rounds), 'round')}",
        height=TOP + ROW_HEIGHT * len(pods) + BOTTOM,
        ticks=[TimeTick(x=scale(time), text=format_time_of_day(time)) for time in choose_time_ticks(scale.first, scale.last)],
        rounds=list(_rounds(view, scale)),
        rows=[_row(name, periods, TOP + ROW_HEIGHT * index, scale) for index, (name, periods) in enumerate(pods.items())],
        cause=_cause(diagnosis, list(pods), scale),
        hidden=plural(len(view.pods) - len(pods), "more pod") if len(view.pods) > len(pods) else "",
    )


def _select_pods(view: JobView, diagnosis: Diagnosis) -> list[PodView]:
    """Return the pods of the timeline in their order."""
    ordered = view.pods.sort()
    if len(ordered) <= MAX_ROWS:
        return ordered
    named = {
        pod
        for issue in (diagnosis.first_cause, *diagnosis.consequences, *diagnosis.other_causes)
        if issue
        for pod in issue.pods
    }
    first = sorted(ordered, key=lambda pod: (pod.name not in named, not pod.restarts, pod.order))[:MAX_ROWS]
    return sorted(first, key=lambda pod: pod.order)


def _periods(view: JobView, pod: PodView, spans: Mapping[str, LogSpan]) -> Iterator[_Period]:
    state = pod.state
    now = (view.job.ended if view.job and view.job.ended else None) or view.now
    ordered = sorted(spans.items(), key=lambda item: item[1].first)
    starts = [span.first for _, span in ordered]
    started = state.started if state else None
    current = state.container_id if state and state.container_id in spans else ordered[-1][0] if ordered else ""
    if state and state.created:
        until = min([*starts, started or now or state.created])
        if until > state.created:
            yield _Period("waits", state.created, until, f"waited {format_duration((until - state.created) / SECOND)}")
    for container, span in ordered:
        newest = container == current
        first, last = span.first, span.last
        if newest and started and len(ordered) == 1:
            first = min(first, started)
        if newest and state:
            last = max(last, state.last_ended or 0, (now or 0) if pod.live and not state.last_ended else 0)
        failed = newest and state is not None and bool(state.exit_code) and not pod.live
        kind = "failed" if failed else "runs" if newest else "before"
        text = f"{plural(span.lines, 'line')} in {format_duration((last - first) / SECOND)}, from {format_time(first)}"
        yield _Period(kind, first, last, text)
    if not ordered and state and started:
        end = state.last_ended or now or started
        text = f"ran {format_duration((end - started) / SECOND)}, printed nothing"
        yield _Period("failed" if state.exit_code else "runs", started, end, text)


def _row(pod: str, periods: Sequence[_Period], y: int, scale: _Scale) -> Row:
    short_name = pod if len(pod) <= 26 else f"…{pod[-25:]}"  # noqa: PLR2004 - fits into the margin
    return Row(pod=pod, short_name=short_name, y=y, bars=[bar for period in periods for bar in _bars(pod, period, scale)])


def _bars(pod: str, period: _Period, scale: _Scale) -> Iterator[Bar]:
    x = scale(period.first)
    width = round(max(scale(period.last) - x, 2), 1)
    title = f"{pod}: {period.text}"
    yield Bar(x=x, width=width, css_class="runs" if period.kind == "failed" else period.kind, title=title, rx=3)
    if period.kind == "failed":
        mark = min(width, FAILURE_WIDTH)
        yield Bar(x=round(x + width - mark, 1), width=mark, css_class="failed", title=title)


def _rounds(view: JobView, scale: _Scale) -> Iterator[RoundMark]:
    last_number_x = -1000.0
    for index, round_ in enumerate(view.rounds):
        if (time := round_.first_line.resolve_time(view.reference_time)) is None:
            continue
        x, number = scale(time), ""
        if x - last_number_x > 18:  # noqa: PLR2004 - two digits beside each other
            number, last_number_x = format_number(index + 1), x
        title = f"round {index + 1}, {len(round_.members)} of {round_.group_world_size or '?'} pods, {format_time(time)}"
        yield RoundMark(x=x, title=title, number=number)


def _cause(diagnosis: Diagnosis, pods: list[str], scale: _Scale) -> Cause | None:
    issue = diagnosis.first_cause
    if issue is None or issue.time is None or issue.pod not in pods or not scale.first <= issue.time <= scale.last:
        return None
    y = TOP + ROW_HEIGHT * pods.index(issue.pod) + ROW_HEIGHT // 2
    return Cause(x=scale(issue.time), y=y, title=f"{issue.title}, {format_time(issue.time)}")
