"""The live view of a followed job in a terminal: messages and the program's output scroll above a panel."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kfjob.base.text import plural
from kfjob.base.units import SECOND
from kfjob.cli.console import CleanConsole
from kfjob.cli.display import Display
from kfjob.cli.formatting import format_age, local_clock, sparkline, wrap
from kfjob.cli.output import redact
from kfjob.cli.view_text import (
    first_loss_text,
    lr_text,
    mfu_text,
    no_progress_text,
    remaining_text,
    restarts_text,
    setbacks_text,
)
from kfjob.joblog.events import JobPhase
from kfjob.joblog.master.evidence import Master
from kfjob.joblog.progress.training import describe_bad_loss, format_loss
from kfjob.joblog.view.job_view import JobView, format_pause
from kfjob.joblog.view.progress_text import speed_text, step_text
from kfjob.joblog.view.silence import describe_silence, find_silence
from kfjob.joblog.view.stages import find_stage
from kfjob.redaction import cut_text

if TYPE_CHECKING:
    from kfjob.api.reader import LiveReader
    from kfjob.joblog.events import Event
    from kfjob.joblog.program_output import ProgramOutput

MAX_BAR_WIDTH, MIN_BAR_WIDTH = 40, 10
"""Columns of the progress bar and of the loss curve."""
TEXT_WIDTH = 50
"""Columns for the text beside them."""
LABEL_WIDTH = 12
"""Columns of the labels, with the space after them."""
MESSAGE_INDENT = 10
"""Columns before the further lines of a message: those of its time of day."""
MAX_REASON = 300
"""Characters of the reason of a state, such as a message of the scheduler."""
REFRESH_EVERY = 0.2
"""Seconds between two redraws of the panel."""


class LiveDisplay(Display):
    """A panel at the bottom of the terminal; messages and the program's output scroll above it."""

    def __init__(self, reader: LiveReader, output: ProgramOutput | None = None, *, has_ended: bool = False) -> None:
        super().__init__(reader, output, has_ended=has_ended)
        self._console = CleanConsole()
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._last_refresh = 0.0
        self._lines: list[str] = []  # of the program; printed together, because every print draws the panel again

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._print_lines()
        self._live.stop()

    def show_line(self, text: str) -> None:
        """Print a line of the program: above the panel, or to stdout if that is no terminal."""
        if sys.stdout.isatty():
            self._lines.append(redact(text))
        else:
            super().show_line(text)

    def show_stage(self, view: JobView) -> None:
        """Do nothing: the panel shows the stage."""

    def _print_lines(self) -> None:
        if self._lines:
            self._console.print(Text("\n".join(self._lines)), soft_wrap=True)
            self._lines.clear()

    def show_message(self, time: int | None, subject: str, text: str) -> None:
        """Print a line above the panel."""
        self._print_lines()
        self._console.print(style_message(time, subject, text, width=self._console.width), soft_wrap=True)

    def show_progress(self, view: JobView, now: float) -> None:
        """Do nothing: the panel shows the progress."""

    def update(self, view: JobView, event: Event, now: float) -> None:
        """Process one event, and redraw the panel unless that was done a moment ago."""
        super().update(view, event, now)
        if now - self._last_refresh >= REFRESH_EVERY:
            self._last_refresh = now
            self._print_lines()
            self._live.update(panel(self.reader.ref.name, view, width=self._console.width), refresh=True)

    def show_summary(self, view: JobView) -> None:
        """Print the summary with a coloured first line."""
        colour = "green" if view.phase is JobPhase.SUCCEEDED else "red"
        first, *rest = map(redact, self.end_output(view))
        self._print_lines()
        self._console.print()
        self._console.print(Text(wrap(first, self._console.width), style=f"bold {colour}"), soft_wrap=True)
        for line in rest:
            self._console.print(Text(wrap(line, self._console.width)), soft_wrap=True)


def show_live(texts: Iterable[str]) -> None:
    """Show one text after another at the same place of the terminal; the last one stays. Messages are printed above it."""
    console = CleanConsole(sys.stdout)
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=sys.stderr.isatty()) as live:
        for text in texts:
            live.update(Text.from_ansi(text), refresh=True)


def style_message(time: int | None, subject: str, text: str, *, width: int) -> Text:
    """Return a line above the panel: the time of day, the job or pod, and the message without secrets, wrapped at words."""
    clock = local_clock(time) if time else " " * 8
    head = f"{clock}  {subject}  "
    message = Text(wrap(f"{head}{redact(text)}", width, indent=MESSAGE_INDENT))
    message.stylize("dim", 0, len(clock))
    message.stylize("cyan", len(clock), len(head))
    return message


def panel(name: str, view: JobView, *, width: int = 100) -> Group:
    """Return the panel, at most `width` columns wide; unknown values have no row."""
    heading = Text.assemble((name, "bold"), "  ", view.state)
    if view.job and view.job.created:
        heading.append(f"  {format_age(view.job.created, view.now or 0)}", style="dim")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, min_width=len("progress"))
    grid.add_column(overflow="fold")
    room = width - LABEL_WIDTH
    bar_width = max(MIN_BAR_WIDTH, min(MAX_BAR_WIDTH, width - TEXT_WIDTH))
    silence = find_silence(view)
    rows = {
        "reason": Text(wrap(cut_text(view.reason, MAX_REASON), room)),
        "now": Text(wrap(_now(view, name), room)),
        "progress": _progress(view, bar_width),
        "loss": _loss(view, bar_width),
        "eval loss": Text("" if view.evaluation_loss is None else format_loss(view.evaluation_loss)),
        "unread": Text(wrap(no_progress_text(view), room)),
        "silent": Text("" if silence is None else wrap(describe_silence(silence), room)),
        "warning": Text(describe_bad_loss(view.training), style="bold red"),
        "speed": Text(_speed(view)),
        "restarts": Text(restarts_text(view)),
        "pods": Text(_pods(view)),
        "master": Text(_master(view), no_wrap=True, overflow="ellipsis"),
    }
    for label, value in rows.items():
        if value.plain:
            grid.add_row(Text(label, style="dim"), value)
    return Group(Text(""), heading, grid)


def _now(view: JobView, name: str) -> str:
    """Return the stage of the job, with the seconds since the pods or the workers started."""
    stage = find_stage(view, job=name)
    if stage.started is None or view.now is None:
        return str(stage)
    return f"{stage} ({format_pause(max(view.now - stage.started, 0) / SECOND)})"


def _progress(view: JobView, width: int) -> Text:
    row = Text()
    if view.total and view.training.step is not None:
        share = min(view.training.step / view.total, 1.0)
        filled = round(share * width)
        row.append("━" * filled, style="green").append("─" * (width - filled), style="bright_black")
        row.append(f"  {100 * share:3.0f} %  ")
    row.append(step_text(view))
    if remaining := remaining_text(view):
        row.append(f"  {remaining}")
    return row


def _loss(view: JobView, width: int) -> Text:
    training = view.training
    if training.loss is None:
        return Text()
    curve = sparkline([point.loss for point in training.curve], width) if len(training.curve) > 1 else ""
    style = "" if training.not_finite_since is None else "bold red"
    row = Text(f"{curve.ljust(width)}  " if curve else "")
    return row.append(f"{format_loss(training.loss)}{first_loss_text(training)}", style=style)


def _master(view: JobView) -> str:
    return f"{view.master.pod} ({view.master.confidence})" if isinstance(view.master, Master) else ""


def _speed(view: JobView) -> str:
    training = view.training
    parts = [speed_text(training), mfu_text(training), lr_text(training), setbacks_text(training)]
    return " · ".join(part for part in parts if part)


def _pods(view: JobView) -> str:
    """Return `2/2 ready · 1 restart · round 2 since 16:04:31 with 2 of 2 pods`."""
    pods = view.pods.values()
    ready = sum(1 for pod in pods if pod.state and pod.state.ready)
    restarts = sum(pod.restarts for pod in pods)
    parts = [f"{ready}/{len(pods) or len(view.config.workers)} ready"]
    if restarts:
        parts.append(plural(restarts, "restart"))
    if view.rounds:
        newest = view.rounds[-1]
        start = newest.first_line.resolve_time(view.reference_time)
        since = f" since {local_clock(start)}" if start is not None else ""
        parts.append(f"round {len(view.rounds)}{since} with {len(newest.members)} of {newest.group_world_size or '?'} pods")
    return " · ".join(parts)
