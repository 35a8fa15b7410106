"""Write the progress that the log of a job shows into its status, for programs that post none themselves.

A TrainJob has a place for it, which `kubectl get trainjob -o yaml` and dashboards show.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.base.errors import KfjobError
from kfjob.guard.records import COMPONENT
from kfjob.joblog.events import ReportedProgress
from kfjob.joblog.view.job_view import JobView
from kfjob.kinds.registry import find_kind

PERIOD_SECONDS = 10.0
"""Time between two writes: the API server stores each of them."""
MAX_SECONDS = 2**31 - 1
"""The API server accepts no longer time."""
SOURCE = "source"
"""The metric that says where the progress comes from."""


class ProgressReports:
    """Writes the progress of one launch."""

    def __init__(self, target: Target, ref: JobRef, say: Callable[[str], None]) -> None:
        """`say` receives why the progress cannot be written, once."""
        self._target, self._ref, self._say = target, ref, say
        self._is_wanted = ref.capabilities.has_api_server and find_kind(ref.job_kind).shows_progress
        self._has_complained = False
        self._next = 0.0
        self._lines = 0  # of progress, at the last write

    def write(self, view: JobView) -> None:
        """Write the progress of a view that has new lines; that of a job that runs at most every `PERIOD_SECONDS`."""
        has_ended = view.phase is not None and view.phase.ended
        if not self._is_wanted or not view.is_current or view.training.lines == self._lines:
            return
        if time.monotonic() < self._next and not has_ended:
            return
        self._next = time.monotonic() + PERIOD_SECONDS
        posted = view.job.reported if view.job else None
        if posted and posted.metrics.get(SOURCE) != COMPONENT:
            self._is_wanted = False  # the program knows more than its log
            return
        try:
            self._target.cluster.write_progress(self._ref, make_report(view))
            self._lines = view.training.lines
        except KfjobError as err:
            if not self._has_complained:
                self._say(f"{self._ref.name}: the status does not show its progress: {err.title}")
            self._has_complained = True


def make_report(view: JobView) -> ReportedProgress:
    """Return what a view shows of the training."""
    training = view.training
    step, total = training.run_step, training.position.find_run_total(view.epochs)
    if total is None and not training.per_epoch:
        total = view.total
    if training.position.is_first_epoch or training.may_restart:
        total = view.config.expected_steps  # that of the line may be of one epoch
    eta = None if view.is_eta_of_bar else view.eta
    figures = {"step": step, "epoch": training.epoch, "loss": training.loss, "lr": training.lr}
    return ReportedProgress(
        percent=int(100 * step / total) if step is not None and total and step <= total else None,
        remaining_seconds=None if eta is None else min(round(eta), MAX_SECONDS),
        metrics={name: f"{value:.6g}" for name, value in figures.items() if value is not None} | {SOURCE: COMPONENT},
        time=view.now or time.time_ns(),
    )
