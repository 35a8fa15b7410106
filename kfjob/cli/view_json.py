"""The view of a job, its progress, its master and its rounds as JSON."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from kfjob.joblog.events import JobSnapshot
from kfjob.joblog.master.evidence import Master
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.silence import find_silence
from kfjob.joblog.view.stages import find_partial_end


def training_json(training: Training) -> dict[str, Any]:
    """Return the progress as JSON, without the curve."""
    internal = {
        "curve",
        "curve_interval",
        "smoothed_count",
        "setbacks",
        "position",
        "step_time",
        "evaluations",
        "first_run_step",
        "not_finite_line",
    }
    values = {name: getattr(training, name) for name in ("step", "total", "per_epoch", "epoch", "epochs")} | asdict(training)
    if training.per_epoch:
        values |= {"run_step": training.run_step, "run_total": training.position.run_total}
    return {key: value for key, value in values.items() if key not in internal and value not in (None, "")}


def progress_json(view: JobView) -> dict[str, Any]:
    """Return the progress with what depends on the present time, as JSON."""
    since = view.seconds_since_progress if view.running else None
    return training_json(view.training) | {
        "steps": view.training.steps,
        "total": view.total,
        "epochs": view.epochs,
        "evaluation_loss": view.evaluation_loss,
        "eta": view.eta,
        "is_eta_of_bar": view.is_eta_of_bar,
        "epoch_eta": view.epoch_eta,
        "seconds_since_progress": None if since is None else round(since),
        "stalled": view.stalled,
    }


_OF_WHOLE_LOG = frozenset(
    {"lines", "first_loss", "first_step", "first_time", "step_interval", "smoothed_loss", "steps", "skipped", "rolled_back",
     "longest_pause", "stalled", "not_finite_since"}
)  # fmt: skip
"""Progress that the last lines of a log do not show."""


def job_json(job: JobSnapshot, view: JobView | None, *, has_tail_only: bool = False) -> dict[str, Any]:
    """Return a job as JSON, with the newest progress if its logs were read; `has_tail_only`: only their last lines."""
    keys = ("name", "namespace", "backend", "launch", "uid", "phase", "image", "created", "started", "ended", "submitted_by")
    progress = progress_json(view) if view and view.training.lines else None
    if progress and has_tail_only:
        progress = {key: value for key, value in progress.items() if key not in _OF_WHOLE_LOG}
    return {key: getattr(job, key) for key in keys} | {"progress": progress}


def view_json(view: JobView) -> dict[str, Any]:
    """Return the view as JSON."""
    master = view.master
    return {
        "phase": view.phase,
        **{name: getattr(view.job, name, None) for name in ("created", "started", "ended")},
        "headline": view.headline,
        "pods": [to_builtins(pod.state) | {"ranks": list(pod.global_ranks)} for pod in view.pods.values() if pod.state],
        "store": to_builtins(view.store),
        "master": to_builtins(master) if isinstance(master, Master) else None,
        "progress": progress_json(view),
        "reported": to_builtins(view.job.reported) if view.job else None,
        "restarts": to_builtins(view.restarts),
        "relaunches": relaunches_json(view),
        "guard_decision": view.guard_decision or None,
        "waiting": to_builtins(find_partial_end(view)),
        "silence": to_builtins(find_silence(view)),
        "resume": to_builtins(view.resume),
        "checkpoint": to_builtins(view.checkpoint),
        "outcome": to_builtins(view.outcome) if view.outcome else None,
    }


def relaunches_json(view: JobView) -> list[dict[str, Any]]:
    """Return the guard's relaunches before this launch, oldest first."""
    if not view.relaunches:
        return []
    from kfjob.guard.facts import read_history

    keys = ("launch", "time", "reason", "step", "progress", "node")
    return [{key: getattr(entry, key) for key in keys} for entry in read_history(view.relaunches)]


def rounds_json(view: JobView) -> dict[str, Any]:
    """Return all rounds as JSON."""
    return {
        "master": to_builtins(view.master) if isinstance(view.master, Master) else None,
        "pods": [{"pod": pod.name, "node": pod.node, "phase": pod.phase} for pod in view.pods.sort()],
        "rounds": [
            {
                "time": round_.first_line.resolve_time(view.reference_time),
                "members": [
                    {
                        "pod": member.pod,
                        "container": member.container,
                        "group_rank": member.result.group_rank,
                        "global_ranks": list(member.result.global_ranks),
                        "master_addr": member.result.master_addr,
                    }
                    for member in round_.members
                ],
            }
            for round_ in view.rounds
        ],
    }
