"""Displays of a followed job: a live panel in a terminal, plain lines elsewhere, JSON lines for programs.

JSON goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kfjob.api.reader import describe_ref
from kfjob.backends import folder
from kfjob.backends.base import LogRange
from kfjob.cli.diagnose import diagnosis_json, first_cause
from kfjob.cli.formatting import format_age, local_clock, sparkline
from kfjob.cli.options import print_json
from kfjob.cli.panel import panel
from kfjob.cli.view_text import news_text, outcome_text, progress_line, training_json, view_json
from kfjob.errors import KfjobError
from kfjob.events import JobPhase, LogLine
from kfjob.observe.diagnose.diagnosis import Diagnosis
from kfjob.observe.diagnose.ranking import diagnose
from kfjob.observe.diagnose.symptoms import SymptomCollector
from kfjob.observe.master import Confidence, Master, format_ranks
from kfjob.observe.view import JobView, News
from kfjob.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfjob.api.reader import LiveReader
    from kfjob.events import Event

PROGRESS_EVERY = 5.0
"""Seconds between two progress lines of the plain display."""
REFRESH_EVERY = 0.2
"""Seconds between two redraws of the live panel."""
LOG_TAIL = 15
"""Lines of a failed pod's log in the summary."""


class Display:
    """Receives every event of a job, with the view after it; subclasses print."""

    def __init__(self, reader: LiveReader) -> None:
        self.reader = reader
        self._symptoms = SymptomCollector()
        self._last_news: News | None = None
        self._last_progress = 0.0
        self._headline: str | None = None
        self._step: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def update(self, view: JobView, event: Event, now: float) -> None:
        """Process one event; `now` is in seconds of a monotonic clock."""
        self._symptoms.feed(event, view)  # at once: the operator may delete the pods and their logs
        if view.phase and view.headline != self._headline:
            self._headline = view.headline
            self.show_message(view.now, self.reader.ref.name, view.headline)
        for news in self._take_news(view):
            self.show_message(news.time, news.pod, news_text(news))
        if view.training.step != self._step:
            self._step = view.training.step
            self.show_progress(view, now)

    def show_message(self, time: int | None, subject: str, text: str) -> None:
        """Print a line about the job or one of its pods."""
        clock = local_clock(time) if time else " " * 8
        print(f"{clock}  {subject}  {text}", file=sys.stderr, flush=True)  # noqa: T201 - this is the output

    def show_progress(self, view: JobView, now: float) -> None:
        """Print the progress after a new step."""
        if now - self._last_progress >= PROGRESS_EVERY:
            self._last_progress = now
            self.show_message(view.training.last_time, view.training.pod, progress_line(view))

    def summary(self, view: JobView) -> None:
        """Print the summary of a job that has ended."""
        lines = summary(self.reader, view, self.diagnosis(view))
        print("\n" + "\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201 - this is the output

    def diagnosis(self, view: JobView) -> Diagnosis:
        """Return the diagnosis from the events so far."""
        return diagnose(self._symptoms, view, job=self.reader.ref.name)

    def _take_news(self, view: JobView) -> list[News]:
        unseen: list[News] = []
        for news in reversed(view.news):
            if news is self._last_news:
                break
            unseen.append(news)
        if view.news:
            self._last_news = view.news[-1]
        return unseen[::-1]


class PlainDisplay(Display):
    """One line per event, and a progress line every few seconds."""


class JsonDisplay(Display):
    """One JSON object per line on stdout, of kind `news` or `progress`, and at the end `end` with the whole view."""

    def show_message(self, time: int | None, subject: str, text: str) -> None:
        """Print an object of kind `news`."""
        print_json({"kind": "news", "time": time, "subject": subject, "text": text})

    def show_progress(self, view: JobView, now: float) -> None:  # noqa: ARG002 - programs get every step
        """Print an object of kind `progress`."""
        print_json({"kind": "progress"} | training_json(view.training) | {"total": view.total, "eta": view.eta})

    def summary(self, view: JobView) -> None:
        """Print the object of kind `end`."""
        diagnosis = {"diagnosis": diagnosis_json(self.diagnosis(view))}
        print_json({"kind": "end"} | describe_ref(self.reader.ref) | view_json(view) | diagnosis)


class LiveDisplay(Display):
    """A panel at the bottom of the terminal; messages scroll above it."""

    def __init__(self, reader: LiveReader) -> None:
        super().__init__(reader)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._last_refresh = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show_message(self, time: int | None, subject: str, text: str) -> None:
        """Print a line above the panel."""
        from rich.text import Text

        clock = local_clock(time) if time else " " * 8
        self._console.print(Text.assemble((f"{clock}  ", "dim"), (f"{subject}  ", "cyan"), text))

    def show_progress(self, view: JobView, now: float) -> None:
        """Do nothing: the panel shows the progress."""

    def update(self, view: JobView, event: Event, now: float) -> None:
        """Process one event, and redraw the panel unless that was done a moment ago."""
        super().update(view, event, now)
        if now - self._last_refresh >= REFRESH_EVERY:
            self._last_refresh = now
            self._live.update(panel(self.reader.ref.name, view, width=self._console.width), refresh=True)

    def summary(self, view: JobView) -> None:
        """Print the summary with a coloured first line."""
        from rich.text import Text

        colour = "green" if view.phase is JobPhase.SUCCEEDED else "red"
        first, *rest = summary(self.reader, view, self.diagnosis(view))
        self._console.print()
        self._console.print(Text(first, style=f"bold {colour}"))
        for line in rest:
            self._console.print(Text(line), soft_wrap=True)


def summary(reader: LiveReader, view: JobView, diagnosis: Diagnosis) -> list[str]:
    """Return the summary of a job that has ended: state, master, loss, files, next commands, first cause."""
    duration = ""
    if view.job and view.job.created:
        duration = f" after {format_age(view.job.created, view.job.ended or view.now or view.job.created)}"
    lines = [f"{reader.ref.name}: {view.headline}{duration}"]
    lines += [f"  {label:<10} {value}" for label, value in _summary_rows(reader, view)]
    if diagnosis.first_cause:
        lines += ["", *first_cause(diagnosis)]
    if view.phase is JobPhase.FAILED:
        lines += _failed_log(reader, view, diagnosis)
    return lines


def _summary_rows(reader: LiveReader, view: JobView) -> Iterator[tuple[str, str]]:
    if isinstance(view.master, Master) and (view.training.lines or view.master.confidence is not Confidence.PREDICTED):
        ranks = f", global ranks {format_ranks(view.master.global_ranks)}" if view.master.global_ranks else ""
        yield "master", f"{view.master.pod} ({view.master.confidence}{ranks})"
    training = view.training
    if training.loss is not None:
        steps = f" in {plural(training.step, 'step')}" if training.step is not None else ""
        first = f"{training.first_loss:.4f} → " if training.first_loss is not None else ""
        yield "loss", f"{first}{training.loss:.4f}{steps}  {sparkline([point.loss for point in training.curve])}"
    if view.outcome:
        yield "outcome", outcome_text(view)
    if view.checkpoint:
        yield "checkpoint", view.checkpoint.path
    yield "logs", str(_logs_folder(reader) or f"kfjob logs {reader.ref.name}")
    is_stopped = view.phase is JobPhase.STOPPED
    commands = ["relaunch {}"] if is_stopped else ["status {}", "logs {} --master", "relaunch {}", "stop {}"]
    yield "next", " · ".join(f"kfjob {command.format(reader.ref.name)}" for command in commands)


def _failed_log(reader: LiveReader, view: JobView, diagnosis: Diagnosis) -> list[str]:
    """Return the end of the log of the pod that failed first."""
    if not view.pod_problems:
        return []
    first_pod = diagnosis.first_cause.pod if diagnosis.first_cause else ""
    problem = next((problem for problem in view.pod_problems if problem.pod == first_pod), view.pod_problems[0])
    lines: list[str] = []
    with suppress(KfjobError):
        lines = [line.text for line in reader.logs(problem.pod, LogRange(tail=LOG_TAIL)) if isinstance(line, LogLine)]
    return ["", f"last lines of `{problem.pod}` ({problem.reason}):", *(f"  {line}" for line in lines)]


def _logs_folder(reader: LiveReader) -> Path | None:
    """Return the folder of the log files, if they are on this machine."""
    if reader.ref.backend != "local":
        return None
    root, ref = reader.target.settings.state / "local", reader.ref
    return folder.launch_folder(root, ref.namespace, ref.name, ref.launch)
