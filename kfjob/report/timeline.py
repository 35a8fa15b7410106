"""What happened when: one row for each pod with the runs of its container, the meetings of the agents, and the first cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kfjob.observe.diagnose.diagnosis import Diagnosis
from kfjob.observe.pods import PodView
from kfjob.observe.spans import Span
from kfjob.observe.view import JobView
from kfjob.report.markup import Html, element, text
from kfjob.report.numbers import clock, lasting, number, time_marks, time_of_day

WIDTH, LEFT, RIGHT, TOP, BOTTOM, ROW = 1080, 190, 16, 34, 26, 22
END = 6
"""Width of the mark at the end of what failed."""
SHOWN = 40
"""Rows at most; of more pods those that had trouble come first."""
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a pod's life."""

    kind: str  # a class of the style sheet: waits | runs | before | failed
    first: int
    last: int
    said: str


def timeline(view: JobView, diagnosis: Diagnosis, spans: Mapping[str, Mapping[str, Span]]) -> Html:
    """The picture and its key; "" where no time is known."""
    rows = {pod.name: list(_bars(view, pod, spans.get(pod.name, {}))) for pod in _shown(view, diagnosis)}
    times = [time for bars in rows.values() for bar in bars for time in (bar.first, bar.last)]
    times += [time for one in view.rounds if (time := one.first.moment(view.dated)) is not None] if times else []
    if not times or max(times) <= min(times):
        return ""
    first, last = min(times), max(times)
    height = TOP + ROW * len(rows) + BOTTOM
    drawn = [*_grid(first, last, height), *_rounds(view, first, last, height)]
    for index, (name, bars) in enumerate(rows.items()):
        drawn += _row(name, bars, TOP + ROW * index, first, last)
    drawn += _cause(diagnosis, list(rows), first, last)
    said = f"Timeline of {len(rows)} pods over {lasting((last - first) / SECOND)}, {len(view.rounds)} rounds"
    picture = element(
        "svg", *drawn, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=said, class_="timeline", width=WIDTH
    )
    more = len(view.pods) - len(rows)
    note = element("p", text(f"{more} more pods are not drawn."), class_="note") if more > 0 else ""
    return element("div", element("div", picture, class_="scroll"), _key(), note, class_="card")


def _shown(view: JobView, diagnosis: Diagnosis) -> list[PodView]:
    """The pods that are drawn, in their order."""
    ordered = sorted(view.pods.values(), key=place)
    if len(ordered) <= SHOWN:
        return ordered
    named = {pod for finding in (diagnosis.first, *diagnosis.followed, *diagnosis.others) if finding for pod in finding.pods}
    best = sorted(ordered, key=lambda pod: (pod.name not in named, not pod.restarts, place(pod)))[:SHOWN]
    return sorted(best, key=place)


def place(pod: PodView) -> tuple[str, int, str]:
    """Masters first, then by number."""
    return (pod.state.replica_type, pod.state.replica_index, pod.name) if pod.state else ("", 0, pod.name)


def _bars(view: JobView, pod: PodView, spans: Mapping[str, Span]) -> Iterator[Bar]:
    state = pod.state
    now = (view.job.ended if view.job and view.job.ended else None) or view.now
    ordered = sorted(spans.items(), key=lambda at: at[1].first)
    starts = [span.first for _, span in ordered]
    begun = state.started if state else None
    current = state.container_id if state and state.container_id in spans else ordered[-1][0] if ordered else ""
    if state and state.created:
        until = min([*starts, begun or now or state.created])
        if until > state.created:
            yield Bar("waits", state.created, until, f"waited {lasting((until - state.created) / SECOND)}")
    for container, span in ordered:
        newest = container == current
        first, last = span.first, span.last
        if newest and begun and len(ordered) == 1:
            first = min(first, begun)
        if newest and state:
            last = max(last, state.last_ended or 0, (now or 0) if pod.live and not state.last_ended else 0)
        failed = newest and state is not None and bool(state.exit_code) and not pod.live
        kind = "failed" if failed else "runs" if newest else "before"
        yield Bar(kind, first, last, f"{span.lines} lines in {lasting((last - first) / SECOND)}, from {clock(first)}")
    if not ordered and state and begun:
        end = state.last_ended or now or begun
        yield Bar(
            "failed" if state.exit_code else "runs", begun, end, f"ran {lasting((end - begun) / SECOND)}, printed nothing"
        )


def _row(name: str, bars: list[Bar], top: int, first: int, last: int) -> Iterator[Html]:
    short = name if len(name) <= 26 else f"…{name[-25:]}"  # noqa: PLR2004 - what fits
    yield element("text", text(short), element("title", text(name)), x=LEFT - 10, y=top + 15, text_anchor="end", class_="pod")
    for bar in bars:
        x = _x(bar.first, first, last)
        width = round(max(_x(bar.last, first, last) - x, 2), 1)
        title = element("title", text(f"{name}: {bar.said}"))
        whole = "runs" if bar.kind == "failed" else bar.kind
        yield element("rect", title, x=x, y=top + 5, width=width, height=ROW - 9, rx=3, class_=whole)
        if bar.kind == "failed":
            end = min(width, END)
            yield element("rect", title, x=round(x + width - end, 1), y=top + 5, width=end, height=ROW - 9, class_="failed")


def _grid(first: int, last: int, height: int) -> Iterator[Html]:
    for time in time_marks(first, last):
        x = _x(time, first, last)
        yield element("line", x1=x, x2=x, y1=TOP, y2=height - BOTTOM, class_="grid")
        yield element("text", text(time_of_day(time)), x=x, y=height - BOTTOM + 17, text_anchor="middle")


def _rounds(view: JobView, first: int, last: int, height: int) -> Iterator[Html]:
    edge = -1000.0
    for index, one in enumerate(view.rounds):
        if (time := one.first.moment(view.dated)) is None:
            continue
        x = _x(time, first, last)
        title = element("title", text(f"round {index + 1}, {len(one.members)} of {one.world or '?'} pods, {clock(time)}"))
        yield element("line", title, x1=x, x2=x, y1=TOP - 8, y2=height - BOTTOM, class_="round")
        if x - edge > 18:  # noqa: PLR2004 - two figures beside each other
            yield element("text", text(number(index + 1)), title, x=x, y=TOP - 14, text_anchor="middle", class_="roundname")
            edge = x


def _cause(diagnosis: Diagnosis, rows: list[str], first: int, last: int) -> Iterator[Html]:
    finding = diagnosis.first
    if finding is None or finding.time is None or finding.pod not in rows or not first <= finding.time <= last:
        return
    x, y = _x(finding.time, first, last), TOP + ROW * rows.index(finding.pod) + ROW // 2
    title = element("title", text(f"{finding.title}, {clock(finding.time)}"))
    yield element("path", title, d=f"M{x} {y - 7}l7 7l-7 7l-7 -7z", class_="cause")


def _x(time: int, first: int, last: int) -> float:
    return round(LEFT + (time - first) / (last - first) * (WIDTH - LEFT - RIGHT), 1)


def _key() -> Html:
    kinds = {"waits": "waits", "before": "ran before a restart", "runs": "runs", "failed": "ended badly"}
    keys = [element("span", text(said), class_=f"key {kind}") for kind, said in kinds.items()]
    keys += [element("span", "agents meet (a round)", class_="key round"), element("span", "first cause", class_="key cause")]
    return element("p", *keys, class_="legend", aria_hidden="true")
