"""Views as text: ages, numbers, tables. Pure: the time is handed in."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from kfjob.observe.agent_records import RendezvousResult
from kfjob.observe.master import Master, format_ranks
from kfjob.observe.pods import PodView
from kfjob.observe.training import Training
from kfjob.observe.view import JobView, News
from kfjob.text import plural

SECOND = 1_000_000_000
_BLOCKS = "▁▂▃▄▅▆▇█"


def age(since: int | None, now: int) -> str:
    """`12s`, `5m03s`, `3h12m`, `4d2h`, as kubectl writes it; `-` when not known."""
    return "-" if since is None else duration(max(now - since, 0) / SECOND)


def duration(seconds: float | None) -> str:
    """`12s`, `5m03s`, `3h12m`, `4d2h`."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes == 0:
        return f"{whole}s"
    if hours == 0:
        return f"{minutes}m{whole % 60:02}s"
    return f"{hours}h{minutes % 60:02}m" if days == 0 else f"{days}d{hours % 24}h"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns under their names, three spaces apart."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def sparkline(values: Sequence[float], width: int = 32) -> str:
    """The course of the values in one line of text; each character is the mean of its share. What is not finite is left out."""
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return ""
    width = min(width, len(values))
    cuts = [round(i * len(values) / width) for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in means)


def progress_line(view: JobView) -> str:
    """`step 120/300 · loss 4.2104 (7.61 at first) · 35.1 samples/s · lr 0.000812 · 12s left`; "" when nothing is known."""
    training = view.training
    if training.step is None and training.loss is None:
        return ""
    parts = [f"step {training.step}{f'/{view.total}' if view.total else ''}" if training.step is not None else ""]
    if training.loss is not None:
        first = f" ({training.first_loss:.4g} at first)" if training.first_loss not in (None, training.loss) else ""
        parts.append(f"loss {training.loss:.4f}{first}")
    if training.speed is not None:
        parts.append(f"{training.speed:.4g} {training.unit}".strip())
    if training.lr is not None:
        parts.append(f"lr {training.lr:.3g}")
    if training.mfu is not None:
        parts.append(f"MFU {100 * training.mfu:.1f} %")
    if setbacks := setbacks_text(training):
        parts.append(setbacks)
    if view.running and view.eta is not None:
        parts.append(f"{duration(view.eta)} left")
    return " · ".join(part for part in parts if part)


def news_text(news: News) -> str:
    """`failed: …`; a pod's new state and the trainer's own lines say by themselves what they are."""
    itself = news.kind == "pod" or news.text.lower().startswith(news.kind)
    return news.text if itself else f"{news.kind}: {news.text}"


def setbacks_text(training: Training) -> str:
    """`2 steps skipped, 1 roll-back`; "" where every step counted."""
    said = ((training.skipped, "step", " skipped"), (training.rolled_back, "roll-back", ""))
    return ", ".join(f"{plural(many, what)}{more}" for many, what, more in said if many)


def pods_table(view: JobView, now: int) -> str:
    """`NAME READY STATUS RESTARTS AGE`, as kubectl has it, and the ranks, which it has not."""
    rows = []
    for pod in sorted(view.pods.values(), key=_place):
        state = pod.state
        status = (state.reason or str(state.phase)) if state else "Unknown"
        ready = "1/1" if state and state.ready else "0/1"
        ranks = format_ranks(pod.global_ranks) or "-"
        created = state.created if state else None
        rows.append(
            (pod.name, ready, status, str(pod.restarts), age(created, now), (state.node if state else "") or "-", ranks)
        )
    return table(("NAME", "READY", "STATUS", "RESTARTS", "AGE", "NODE", "RANKS"), rows)


def _place(pod: PodView) -> tuple[str, int, str]:
    return (pod.state.replica_type, pod.state.replica_index, pod.name) if pod.state else ("", 0, pod.name)


def status_text(view: JobView, *, name: str, now: int) -> str:
    """All that `kfjob status` prints."""
    created = view.job.created if view.job else None
    lines = [table(("NAME", "STATE", "AGE"), [(name, view.headline, age(created, now))]), "", pods_table(view, now)]
    facts = {
        "master": f"{view.master.pod} ({view.master.confidence})" if isinstance(view.master, Master) else "",
        "progress": progress_line(view),
        "loss": sparkline([point.loss for point in view.training.curve]) if view.training.curve else "",
        "checkpoint": f"{view.checkpoint.name}  {view.checkpoint.path}" if view.checkpoint else "",
        "outcome": f"{view.outcome.outcome}{f': {view.outcome.reason}' if view.outcome.reason else ''}" if view.outcome else "",
    }
    said = [f"{key:<10} {value}" for key, value in facts.items() if value]
    return "\n".join([*lines, "", *said] if said else lines)


def training_json(training: Training) -> dict[str, Any]:
    """The progress for machines, without the curve."""
    inner = {"curve", "curve_interval", "smoothed_count", "setbacks"}
    return {key: value for key, value in asdict(training).items() if key not in inner and value not in (None, "")}


def view_json(view: JobView) -> dict[str, Any]:
    """The view for machines."""
    master = view.master
    return {
        "phase": view.phase,
        "headline": view.headline,
        "pods": [to_builtins(pod.state) | {"ranks": list(pod.global_ranks)} for pod in view.pods.values() if pod.state],
        "master": master_json(master) if isinstance(master, Master) else None,
        "progress": training_json(view.training) | {"total": view.total, "eta": view.eta},
        "checkpoint": to_builtins(view.checkpoint) if view.checkpoint else None,
        "outcome": to_builtins(view.outcome) if view.outcome else None,
    }


def master_json(master: Master) -> dict[str, Any]:
    """The answer of `kfjob master` for machines."""
    told: dict[str, Any] = to_builtins(master)
    return told


ROUNDS = 5
"""The newest rounds, of which a table has a column each."""


def clock(time_ns: int | None) -> str:
    """The time of day in UTC, `--:--:--` when not known."""
    return time.strftime("%H:%M:%S", time.gmtime(time_ns / SECOND)) if time_ns is not None else "--:--:--"


def local_clock(time_ns: int) -> str:
    """The time of day as this machine's clock shows it."""
    return time.strftime("%H:%M:%S", time.localtime(time_ns / SECOND))


def rounds_text(view: JobView) -> str:
    """Every pod: whether it prints progress, and its group rank and global ranks in each of the newest rounds."""
    rounds = view.rounds[-ROUNDS:]
    printer = view.master.pod if isinstance(view.master, Master) else ""
    header = ["", "POD", "NODE", "STATE", *(clock(one.first_line.resolve_time(view.reference_time)) for one in rounds)]
    rows = []
    for pod in sorted(view.pods.values(), key=_place):
        state = (pod.state.reason or str(pod.state.phase)) if pod.state else "-"
        ranks = [next((_ranks(member.result) for member in one.members if member.pod == pod.name), "-") for one in rounds]
        rows.append(["*" if pod.name == printer else "", pod.name, pod.node or "-", state, *ranks])
    older = len(view.rounds) - len(rounds)
    notes = [f"{older} older rounds: `-o json` has them"] if older else []
    return "\n".join([table(header, rows), *notes])


def _ranks(result: RendezvousResult) -> str:
    """`0 (0-7)`: group rank, and global ranks."""
    group = "?" if result.group_rank is None else str(result.group_rank)
    return f"{group} ({format_ranks(result.global_ranks)})" if result.global_ranks else group


def rounds_json(view: JobView) -> dict[str, Any]:
    """The same for machines."""
    return {
        "master": master_json(view.master) if isinstance(view.master, Master) else None,
        "pods": [{"pod": pod.name, "node": pod.node, "phase": pod.phase} for pod in sorted(view.pods.values(), key=_place)],
        "rounds": [
            {
                "time": one.first_line.resolve_time(view.reference_time),
                "members": [
                    {
                        "pod": member.pod,
                        "container": member.container,
                        "group_rank": member.result.group_rank,
                        "global_ranks": list(member.result.global_ranks),
                        "master_addr": member.result.master_addr,
                    }
                    for member in one.members
                ],
            }
            for one in view.rounds
        ],
    }
