"""A job as one HTML file: how it went, what was wrong, its curves, its timeline, its pods, its spec.

Pure: the same values, the same bytes. Nothing in it is fetched, and nothing that a job printed can become markup or script: all
text is escaped, and the page's own policy allows this one script and no network.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kfjob.events import JobPhase
from kfjob.observe.diagnose.diagnosis import Diagnosis, Finding
from kfjob.observe.diagnose.noted import Noted
from kfjob.observe.master import Master, span
from kfjob.observe.spans import Span
from kfjob.observe.training import Training
from kfjob.observe.view import JobView
from kfjob.observe.words import counted
from kfjob.report.assets import script, style
from kfjob.report.charts import Line, chart
from kfjob.report.markup import Html, element, prose, table, text
from kfjob.report.numbers import SECOND, clock, lasting, number
from kfjob.report.timeline import place, timeline

WARNINGS = 100
EVENTS = 60


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a page tells. `facts` are further words on where the job ran (namespace, launch, image …)."""

    name: str
    view: JobView
    diagnosis: Diagnosis
    warnings: Sequence[Noted] = ()
    uncounted: int = 0  # lines of warnings beyond those
    spans: Mapping[str, Mapping[str, Span]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    spec: str = ""  # as YAML
    made: int | None = None  # when, nanoseconds since the epoch
    version: str = ""  # of kfjob


def page(report: Report) -> Html:
    """The whole file."""
    body = element("main", *_parts(report))
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(script())}'; img-src data:; "
    policy += "base-uri 'none'; form-action 'none'"
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        + element("title", text(f"{report.name} · kfjob report"))
        + f"<style>{style()}</style>"
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{body}<script>{script()}</script></body></html>\n'


def _digest(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def _parts(report: Report) -> Iterator[Html]:
    view = report.view
    yield _header(report)
    yield element("dl", *_tiles(view), class_="tiles")
    yield element("h2", "Diagnosis")
    yield from _diagnosis(report.diagnosis)
    if curves := "".join(_curves(view.training)):
        yield element("h2", "Training") + element("div", curves, class_="charts")
    if drawn := timeline(view, report.diagnosis, report.spans):
        yield element("h2", "Timeline") + drawn
    if view.pods:
        yield element("h2", "Pods") + element("div", _pods(view), class_="card")
    if view.recorded:
        yield element("h2", "What the cluster wrote down") + element("div", _events(view), class_="card")
    if report.warnings:
        yield element("h2", "Warnings") + element("div", _warnings(report), class_="card")
    if report.spec:
        yield element("h2", "Spec")
        yield element("details", element("summary", "the submitted spec"), element("pre", text(report.spec)), open="")
    made = f"Made {clock(report.made)} " if report.made else "Made "
    yield element("footer", text(f"{made}by kfjob {report.version}".strip() + f", from {report.diagnosis.lines} lines of log."))


def _header(report: Report) -> Html:
    view = report.view
    phase = view.phase
    if phase is JobPhase.SUCCEEDED:
        look = "good"
    elif phase is JobPhase.FAILED or not report.diagnosis.healthy:
        look = "bad"
    else:
        look = "doubt" if phase is None or view.troubles or phase in {JobPhase.STOPPED, JobPhase.SUSPENDED} else "plain"
    badge = element("span", text(phase or "state not known"), class_=f"badge {look}")
    line = element("div", element("h1", text(report.name)), badge, class_="line")
    where = " · ".join(f"{text(key)} {element('code', text(value))}" for key, value in report.facts.items() if value)
    more = element("p", prose(view.headline), class_="where") if view.headline != str(phase or "unknown") else ""
    return element("header", line, more, element("p", where, class_="where") if where else "")


def _tiles(view: JobView) -> Iterator[Html]:
    training, job = view.training, view.job
    if training.step is not None:
        total = f"of {number(view.total)}" if view.total else ""
        epoch = f"epoch {number(training.epoch)}" if training.epoch is not None else ""
        yield _tile("Step", number(training.step), " · ".join(one for one in (total, epoch) if one))
    if training.loss is not None:
        yield _tile("Loss", number(training.loss), f"{number(training.first_loss)} at first")
    if training.speed is not None:
        more = f"{number(training.tokens_per_second)} tokens/s" if training.tokens_per_second is not None else ""
        mfu = f"MFU {100 * training.mfu:.1f} %" if training.mfu is not None else ""
        yield _tile("Speed", number(training.speed), " · ".join(one for one in (training.unit, more, mfu) if one))
    if training.skipped or training.rolled_back:
        said = f"{counted(training.skipped, 'step')} skipped, {counted(training.rolled_back, 'roll-back')}"
        yield _tile("Setbacks", str(training.skipped + training.rolled_back), said)
    if job and job.created:
        end = job.ended or view.now or job.created
        left = f"{lasting(view.eta)} left" if view.running and view.eta is not None else f"since {clock(job.created)}"
        yield _tile("Time", lasting((end - job.created) / SECOND), left)
    if view.pods:
        restarts = counted(sum(pod.restarts for pod in view.pods.values()), "restart")
        yield _tile("Pods", str(len(view.pods)), f"{restarts}, {counted(len(view.rounds), 'round')}")
    if isinstance(view.master, Master):
        yield _tile("Progress printed by", view.master.pod, str(view.master.confidence), look="name")
    if view.checkpoint:
        yield _tile("Newest checkpoint", view.checkpoint.name, view.checkpoint.path, look="name")


def _tile(name: str, value: str, more: str = "", *, look: str | None = None) -> Html:
    small = element("small", text(more)) if more else ""
    return element("div", element("dt", text(name)), element("dd", text(value), small, class_=look))


def _diagnosis(diagnosis: Diagnosis) -> Iterator[Html]:
    if diagnosis.first:
        yield _finding(diagnosis.first, "first cause")
        yield from _brief("What followed from it", diagnosis.followed)
        yield from (_finding(one, "also wrong") for one in diagnosis.others)
    else:
        said = "The job failed, and no cause was found." if diagnosis.failed else "Nothing wrong was found."
        yield element("div", element("h3", said), class_=f"card finding {'warning' if diagnosis.failed else 'fine'}")
    yield from (_finding(one, "warning") for one in diagnosis.warnings)
    yield from _brief("Overcome: the job went on after it", diagnosis.recovered)
    yield from _brief("Harmless", diagnosis.harmless)


def _finding(finding: Finding, kind: str) -> Html:
    places = [f"pod {finding.pod}" if finding.pod else "", f"rank {finding.rank}" if finding.rank is not None else ""]
    places.append(f"line {finding.line}{' of the container before' if finding.previous else ''}" if finding.line else "")
    places.append(clock(finding.time) if finding.time is not None else "")
    others = len([pod for pod in finding.pods if pod != finding.pod])
    places.append(f"and in {others} more pods" if others else "")
    parts = [
        element("h3", prose(finding.title[:1].upper() + finding.title[1:]), element("small", text(finding.rule))),
        element("p", text(" · ".join([kind, *(one for one in places if one)])), class_="at"),
        element("pre", text("\n".join(finding.evidence))) if finding.evidence else "",
        element("p", prose(f"Why: {finding.cause}")),
        element("p", prose(f"What to do: {finding.remedy}"), class_="todo") if finding.remedy else "",
        element("p", element("a", text(finding.link), href=finding.link)) if finding.link.startswith("https://") else "",
    ]
    return element("div", *parts, class_=f"card finding {'warning' if kind == 'warning' else ''}".strip())


def _brief(title: str, findings: Sequence[Finding]) -> Iterator[Html]:
    if findings:
        rows = [(text(one.count), prose(one.title), text(len(one.pods)), element("code", text(one.rule))) for one in findings]
        made = table(("Times", "What", "Pods", "Rule"), rows, caption=title)
        yield element("details", element("summary", text(f"{title} ({len(findings)})")), element("div", made, class_="card"))


def _curves(training: Training) -> Iterator[Html]:
    curve = training.curve
    loss = Line(name="loss", points=[(one.step, one.loss) for one in curve], style="raw")
    smoothed = Line(name="smoothed", points=[(one.step, one.smoothed) for one in curve], style="main")
    last = f"{number(training.first_loss)} → {number(training.loss)}" if training.loss is not None else ""
    yield chart("Loss", [loss, smoothed], mark=last, wide=True)
    speed = [(one.step, one.speed) for one in curve]
    yield chart("Speed", [Line(name="speed", points=speed, style="main")], unit=training.unit, mark=number(training.speed))
    rate = [(one.step, one.lr) for one in curve]
    yield chart("Learning rate", [Line(name="lr", points=rate, style="main")], mark=number(training.lr))


def _pods(view: JobView) -> Html:
    rows = []
    for pod in sorted(view.pods.values(), key=place):
        state = pod.state
        status = (state.reason or str(state.phase)) if state else "not known"
        exit_code = "" if state is None or state.exit_code is None else str(state.exit_code)
        ranks = span(pod.global_ranks) or "–"
        started = element("span", text(clock(state.started if state else None)), class_="kept")
        rows.append([
            element("span", text(pod.name), class_="mono"), text(status), text(pod.restarts), text(exit_code or "–"),
            text(ranks), element("span", text(pod.node or "–"), class_="mono"), started,
            element("div", prose(state.message if state else ""), class_="long"),
        ])  # fmt: skip
    return table(("Pod", "State", "Restarts", "Exit code", "Ranks", "Node", "Started", "Why"), rows, caption="Pods")


def _events(view: JobView) -> Html:
    rows = [
        (
            element("span", text(clock(one.time)), class_="mono"),
            element("span", text(f"{one.kind} {one.name}"), class_="mono"),
            text(one.reason),
            element("div", text(one.message), class_="long"),
            text(one.count),
        )
        for one in view.recorded[-EVENTS:]
    ]
    return table(("Newest", "Of", "What", "Message", "Times"), rows, caption="Events")


def _warnings(report: Report) -> Html:
    rows = [
        (
            text(one.count),
            text(len(one.pods)),
            text(span(tuple(sorted(one.ranks))) or "–"),
            text(f"harmless ({one.rule})" if one.harmless else one.rule or "–"),
            element("div", element("code", text(one.text)), class_="long"),
        )
        for one in report.warnings[:WARNINGS]
    ]
    left = len(report.warnings) - WARNINGS
    more = [f"{left} more distinct warnings" if left > 0 else "", f"{report.uncounted} more lines" if report.uncounted else ""]
    note = element("p", text("and " + ", ".join(one for one in more if one)), class_="note") if any(more) else ""
    return table(("Times", "Pods", "Ranks", "Known as", "Warning"), rows, caption="Warnings") + note
