"""How a followed job is shown: a live panel in a terminal, lines elsewhere, JSON lines for machines.

All but JSON goes to stderr.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from kfjob.backends.base import LogRange
from kfjob.cli import text
from kfjob.cli.diagnose import diagnosis_json, first_cause
from kfjob.cli.options import print_json
from kfjob.cli.panel import panel
from kfjob.errors import KfjobError
from kfjob.events import JobPhase, LogLine
from kfjob.observe.diagnose.diagnosis import Diagnosis
from kfjob.observe.diagnose.ranking import diagnose
from kfjob.observe.diagnose.symptoms import SymptomCollector
from kfjob.observe.master import Confidence, Master
from kfjob.observe.view import JobView, News

if TYPE_CHECKING:
    from kfjob.api.run import Run
    from kfjob.events import Event

PROGRESS_EVERY = 5.0  # seconds between progress lines where each one stays on the screen
REFRESH_EVERY = 0.2
LAST_WORDS = 15  # lines of a failed pod's log


class Display:
    """Follows the view; subclasses say how it is shown."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._symptoms = SymptomCollector()
        self._last_news: News | None = None
        self._last_progress = 0.0
        self._phase: str | None = None
        self._step: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put back."""

    def update(self, view: JobView, event: Event, now: float) -> None:
        """One more event has happened; `now` in seconds of a clock that never goes back."""
        self._symptoms.feed(event, view)  # as it comes: the operator may delete the pods, and their logs with them
        if view.phase and view.headline != self._phase:
            self._phase = view.headline
            self.say(view.now, self.run.name, view.headline)
        for news in self._fresh(view):
            self.say(news.time, news.pod, text.news_text(news))
        if view.training.step != self._step:
            self._step = view.training.step
            self.progressed(view, now)

    def say(self, when: int | None, who: str, what: str) -> None:
        """Something happened that deserves a line."""
        stamp = text.local_clock(when) if when else " " * 8
        print(f"{stamp}  {who}  {what}", file=sys.stderr, flush=True)  # noqa: T201 - this is the output

    def progressed(self, view: JobView, now: float) -> None:
        """A new step was reported."""
        if now - self._last_progress >= PROGRESS_EVERY:
            self._last_progress = now
            self.say(view.training.last_time, view.training.pod, text.progress_line(view))

    def summary(self, view: JobView) -> None:
        """The job has ended: how, who printed, where things are, what to do next."""
        lines = summary(self.run, view, self.diagnosis(view))
        print("\n" + "\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201 - this is the output

    def diagnosis(self, view: JobView) -> Diagnosis:
        """What was wrong, as far as the followed lines tell."""
        return diagnose(self._symptoms, view, job=self.run.name)

    def _fresh(self, view: JobView) -> list[News]:
        fresh: list[News] = []
        for news in reversed(view.news):
            if news is self._last_news:
                break
            fresh.append(news)
        if view.news:
            self._last_news = view.news[-1]
        return fresh[::-1]


class PlainDisplay(Display):
    """One line for each thing that happens, progress every few seconds."""


class JsonDisplay(Display):
    """One JSON value a line on stdout: `job`, `news` and `progress` as they come, at the end `end` with the whole view."""

    def say(self, when: int | None, who: str, what: str) -> None:
        """Something happened."""
        print_json({"kind": "news", "time": when, "of": who, "text": what})

    def progressed(self, view: JobView, now: float) -> None:  # noqa: ARG002 - machines get every step
        """A new step was reported."""
        print_json({"kind": "progress"} | text.training_json(view.training) | {"total": view.total, "eta": view.eta})

    def summary(self, view: JobView) -> None:
        """The whole view."""
        diagnosed = {"diagnosis": diagnosis_json(self.diagnosis(view))}
        print_json({"kind": "end"} | self.run.describe() | text.view_json(view) | diagnosed)


class LiveDisplay(Display):
    """A panel that stays at the bottom of the terminal, with what happens scrolling by above it."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._drawn = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, when: int | None, who: str, what: str) -> None:
        """Above the panel."""
        from rich.text import Text

        stamp = text.local_clock(when) if when else " " * 8
        self._console.print(Text.assemble((f"{stamp}  ", "dim"), (f"{who}  ", "cyan"), what))

    def progressed(self, view: JobView, now: float) -> None:
        """The panel shows it."""

    def update(self, view: JobView, event: Event, now: float) -> None:
        """Draw at most every fifth of a second."""
        super().update(view, event, now)
        if now - self._drawn >= REFRESH_EVERY:
            self._drawn = now
            self._live.update(panel(self.run.name, view, width=self._console.width), refresh=True)

    def summary(self, view: JobView) -> None:
        """As the others, with colour."""
        from rich.text import Text

        colour = "green" if view.phase is JobPhase.SUCCEEDED else "red"
        first, *rest = summary(self.run, view, self.diagnosis(view))
        self._console.print()
        self._console.print(Text(first, style=f"bold {colour}"))
        for line in rest:
            self._console.print(Text(line), soft_wrap=True)


def summary(run: Run, view: JobView, diagnosis: Diagnosis) -> list[str]:
    """The end of a job in a few lines."""
    took = ""
    if view.job and view.job.created:
        took = f" after {text.age(view.job.created, view.job.ended or view.now or view.job.created)}"
    lines = [f"{run.name}: {view.headline}{took}"]
    facts: list[tuple[str, str]] = []
    if isinstance(view.master, Master) and (view.training.lines or view.master.confidence is not Confidence.PREDICTED):
        ranks = f", global ranks {', '.join(map(str, view.master.global_ranks))}" if view.master.global_ranks else ""
        facts.append(("progress", f"printed by pod `{view.master.pod}` ({view.master.confidence}{ranks})"))
    training = view.training
    if training.loss is not None:
        steps = f" in {training.step} steps" if training.step is not None else ""
        first = f"{training.first_loss:.4f} → " if training.first_loss is not None else ""
        facts.append(("loss", f"{first}{training.loss:.4f}{steps}  {text.sparkline([p.loss for p in training.curve])}"))
    if view.outcome:
        facts.append(("outcome", view.outcome.outcome + (f": {view.outcome.reason}" if view.outcome.reason else "")))
    if view.checkpoint:
        facts.append(("checkpoint", view.checkpoint.path))
    facts.append(("logs", str(run.logs_folder or f"kfjob logs {run.name}")))
    if view.phase is JobPhase.STOPPED:
        facts.append(("next", f"kfjob relaunch {run.name}"))
    else:
        verbs = ("status {}", "logs {} --master", "relaunch {}", "stop {}")
        facts.append(("next", " · ".join(f"kfjob {verb.format(run.name)}" for verb in verbs)))
    lines += [f"  {key:<10} {value}" for key, value in facts]
    if diagnosis.first_cause:
        lines += ["", *first_cause(diagnosis)]
    if view.phase is JobPhase.FAILED:
        lines += last_words(run, view, diagnosis)
    return lines


def last_words(run: Run, view: JobView, diagnosis: Diagnosis) -> list[str]:
    """The end of the log of the pod that failed first."""
    if not view.pod_problems:
        return []
    guilty = diagnosis.first_cause.pod if diagnosis.first_cause else ""
    trouble = next((one for one in view.pod_problems if one.pod == guilty), view.pod_problems[0])
    lines: list[str] = []
    with suppress(KfjobError):
        lines = [line.text for line in run.logs(trouble.pod, LogRange(tail=LAST_WORDS)) if isinstance(line, LogLine)]
    return ["", f"the last lines of `{trouble.pod}` ({trouble.reason}):", *(f"  {line}" for line in lines)]
