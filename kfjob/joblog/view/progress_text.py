"""Step and speed of a job as text, for tables, the live view and pages."""

from __future__ import annotations

from kfjob.base.text import format_figure
from kfjob.joblog.progress.reading import FormatName
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView


def step_text(view: JobView) -> str:
    """Return `step 120/300`, `step 120` without a total, or `epoch 2/5, step 120/300` where the epoch is known."""
    training = view.training
    epoch = f"epoch {training.epoch:g}{f'/{view.epochs}' if view.epochs else ''}" if training.epoch is not None else ""
    if training.step is None:
        return epoch
    step = f"step {training.step}{f'/{view.total}' if view.total else ''}"
    return f"{epoch}, {step}" if epoch else step


def short_step_text(view: JobView) -> str:
    """Return `120/300`, `120`, or `epoch 2/5` where lines count nothing else; "" without progress.

    A step that may be that of an epoch has the epoch before it: `epoch 2/5, 120/300`. Where the lines name no epoch, it is
    the step of the whole run.
    """
    training = view.training
    if training.per_epoch and training.epoch is None:
        total = training.position.run_total
        return f"{training.run_step}{f'/{total}' if total else ''}"
    epoch, _, step = step_text(view).rpartition("step ")
    return f"{epoch}{step}" if training.counts_in_epoch else step


def speed_text(training: Training) -> str:
    """Return `35.1 samples/s`, and the tokens that a pattern of the job reads: `3,290 tok/s`.

    Without a printed speed, return the steps per second by the times of the lines: `0.452 steps/s`.
    """
    speed, tokens = training.speed, training.tokens_per_second
    if speed is None and tokens is None and (measured := training.measured_speed) is not None:
        return f"{format_figure(measured)} steps/s"
    shows_tokens = tokens is not None and (speed is None or training.format == FormatName.CUSTOM)
    parts = [f"{format_figure(speed)} {training.unit}".strip()] if speed is not None else []
    parts += [f"{format_figure(tokens)} tok/s"] if shows_tokens and tokens is not None else []
    return " · ".join(parts)
