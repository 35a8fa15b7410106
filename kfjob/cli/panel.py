"""The live panel: state, progress, loss, speed, pods, master. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfjob.base.text import plural
from kfjob.cli.formatting import format_age, local_clock, sparkline
from kfjob.cli.view_text import (
    first_loss_text,
    lr_text,
    mfu_text,
    remaining_text,
    restarts_text,
    setbacks_text,
    speed_text,
    step_text,
)
from kfjob.joblog.master.evidence import Master
from kfjob.joblog.progress.training import describe_divergence, format_loss
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.silence import describe_processes, describe_silence, find_silence
from kfjob.joblog.view.stages import find_stage

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

MAX_BAR_WIDTH, MIN_BAR_WIDTH = 40, 10
"""Columns of the progress bar and of the loss curve."""
TEXT_WIDTH = 50
"""Columns for the text beside them."""


def panel(name: str, view: JobView, *, width: int = 100) -> Group:
    """Return the panel, at most `width` columns wide; unknown values have no row."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    heading = Text.assemble((name, "bold"), "  ", view.headline)
    if view.job and view.job.created:
        heading.append(f"  {format_age(view.job.created, view.now or 0)}", style="dim")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, min_width=len("progress"))
    grid.add_column(no_wrap=True, overflow="ellipsis")
    bar_width = max(MIN_BAR_WIDTH, min(MAX_BAR_WIDTH, width - TEXT_WIDTH))
    silence = find_silence(view)
    rows = {
        "now": Text(str(find_stage(view, job=name))),
        "progress": _progress(view, bar_width),
        "loss": _loss(view, bar_width),
        "eval loss": Text("" if view.evaluation_loss is None else format_loss(view.evaluation_loss)),
        "silent": Text("" if silence is None else describe_silence(silence)),
        "next": Text("" if silence is None else describe_processes(silence.processes)),
        "warning": Text(describe_divergence(view.training), style="bold red"),
        "speed": Text(_speed(view)),
        "restarts": Text(restarts_text(view)),
        "pods": Text(_pods(view)),
        "master": Text(f"{view.master.pod} ({view.master.confidence})" if isinstance(view.master, Master) else ""),
    }
    for label, value in rows.items():
        if value.plain:
            grid.add_row(Text(label, style="dim"), value)
    return Group(Text(""), heading, grid)


def _progress(view: JobView, width: int) -> Text:
    from rich.text import Text

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
    from rich.text import Text

    training = view.training
    if training.loss is None:
        return Text()
    curve = sparkline([point.loss for point in training.curve], width) if len(training.curve) > 1 else ""
    style = "" if training.not_finite_since is None else "bold red"
    row = Text(f"{curve.ljust(width)}  " if curve else "")
    return row.append(f"{format_loss(training.loss)}{first_loss_text(training)}", style=style)


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
