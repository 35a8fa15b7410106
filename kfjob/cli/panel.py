"""The live panel: state, progress, loss, speed, pods and rounds, the master. A value in, a picture out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfjob.cli import text
from kfjob.observe.master import Master
from kfjob.observe.view import JobView
from kfjob.text import plural

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

BAR = 40  # columns of the bar and of the loss curve
BESIDE = 50  # columns that are left to the words beside them


def panel(name: str, view: JobView, *, width: int = 100) -> Group:
    """As much as is known, in at most `width` columns."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = Text.assemble((name, "bold"), "  ", view.headline)
    if view.job and view.job.created:
        head.append(f"  {text.age(view.job.created, view.now or 0)}", style="dim")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, min_width=len("progress"))
    grid.add_column(no_wrap=True, overflow="ellipsis")
    room = max(10, min(BAR, width - BESIDE))
    rows = {
        "progress": _progress(view, room),
        "loss": _loss(view, room),
        "speed": Text(_speed(view)),
        "pods": Text(_pods(view)),
        "master": Text(f"{view.master.pod} ({view.master.confidence})" if isinstance(view.master, Master) else ""),
    }
    for what, said in rows.items():
        if said.plain:
            grid.add_row(Text(what, style="dim"), said)
    return Group(Text(""), head, grid)


def _progress(view: JobView, room: int) -> Text:
    from rich.text import Text

    training, said = view.training, Text()
    if training.step is None:
        return said
    if view.total:
        share = min(training.step / view.total, 1.0)
        done = round(share * room)
        said.append("━" * done, style="green").append("─" * (room - done), style="bright_black")
        said.append(f"  {100 * share:3.0f} %  ")
    said.append(f"step {training.step}{f'/{view.total}' if view.total else ''}")
    if view.running and view.eta is not None:
        said.append(f"  {text.duration(view.eta)} left")
    return said


def _loss(view: JobView, room: int) -> Text:
    from rich.text import Text

    training = view.training
    if training.loss is None:
        return Text()
    curve = text.sparkline([point.loss for point in training.curve], room) if len(training.curve) > 1 else ""
    first = f" ({training.first_loss:.4g} at first)" if training.first_loss not in (None, training.loss) else ""
    return Text(f"{curve.ljust(room)}  " if curve else "").append(f"{training.loss:.4f}{first}")


def _speed(view: JobView) -> str:
    training = view.training
    parts = [
        f"{training.speed:.4g} {training.unit}".strip() if training.speed is not None else "",
        f"MFU {100 * training.mfu:.1f} %" if training.mfu is not None else "",
        f"lr {training.lr:.3g}" if training.lr is not None else "",
        text.setbacks_text(training),
    ]
    return " · ".join(part for part in parts if part)


def _pods(view: JobView) -> str:
    """`2/2 ready · 1 restart · round 2 since 16:04:31 with 2 pods`."""
    pods = view.pods.values()
    ready = sum(1 for pod in pods if pod.state and pod.state.ready)
    restarts = sum(pod.restarts for pod in pods)
    parts = [f"{ready}/{len(pods) or len(view.config.workers)} ready"]
    if restarts:
        parts.append(plural(restarts, "restart"))
    if view.rounds:
        newest = view.rounds[-1]
        target = newest.first_line.resolve_time(view.reference_time)
        since = f" since {text.local_clock(target)}" if target is not None else ""
        parts.append(f"round {len(view.rounds)}{since} with {len(newest.members)} of {newest.group_world_size or '?'}")
    return " · ".join(parts)
