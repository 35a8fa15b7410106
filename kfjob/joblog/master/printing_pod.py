"""Which of several pods prints the job's progress, where the lines of every rank look alike.

The order: the rank 0 that the lines name, then the pod that holds group rank 0, then the lowest named rank, then the lowest
pod.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from kfjob.base.units import SECOND
from kfjob.joblog.pods.pod_view import PodView
from kfjob.joblog.progress.reading import FormatName, Reading
from kfjob.joblog.progress.training import Training

SILENCE = 60 * SECOND
"""Silence of the printing pod after which another pod without a known rank may take over."""
CLOCK_MARGIN = 2 * SECOND
"""Time by which the first line of one pod may precede that of another, although both print at once."""
_UNKNOWN = 1 << 30


def choose_training(
    training: Training, *, pod: PodView, printer: PodView, reading: Reading, time: int | None, workers: Sequence[str]
) -> Training | None:
    """Return the training that a line of `pod` continues while `printer` prints; None if the line does not count.

    An empty training begins a curve from `pod` alone.
    """
    if reading.loss is None and training.loss is not None and reading.format == FormatName.GENERAL:
        return None
    overlaps = _overlaps(time, training)
    if reading.loss is not None and training.loss is None and reading.conclusive:
        return Training() if overlaps else training
    if _has_rejoined(printer, training, time):
        return training
    if overlaps and printing_order(pod, workers) < printing_order(printer, workers) and not _took_over(pod, training):
        return Training()
    return training if _follows(training, pod, printer, reading, time) else None


def _has_rejoined(printer: PodView, training: Training, time: int | None) -> bool:
    """Return whether the printing pod has joined a later round since it printed."""
    is_older = time is not None and training.last_time is not None and time < training.last_time
    return printer.log.has_rejoined and not is_older


def _took_over(pod: PodView, training: Training) -> bool:
    """Return whether the pod joined a round after the printing pod printed last, so that it continues the run."""
    joined = pod.log.result_line.time if pod.log.result_line else None
    return joined is not None and training.last_time is not None and joined > training.last_time


def _follows(training: Training, pod: PodView, printer: PodView, reading: Reading, time: int | None) -> bool:
    """Return whether the line continues what the printing pod printed, as after a hand-over."""
    last = training.last_time
    if time is None or last is None:
        return _is_ahead(reading, training)
    if time < last:
        return False  # logs are read one after the other, and this one is older
    ranks = {pod.group_rank, printer.group_rank}
    if None not in ranks and 0 in ranks:
        return pod.group_rank == 0  # with both ranks 0 the printer has not joined the newest round yet
    return time - last > SILENCE


def printing_order(pod: PodView, workers: Sequence[str]) -> tuple[object, ...]:
    """Return a key that sorts the pod that stands for the job first."""
    named, group = pod.log.rank, pod.group_rank
    place = workers.index(pod.host) if pod.host in workers else len(workers)
    return (
        named != 0,
        group is not None and group != 0,
        _UNKNOWN if named is None else named,
        place,
        [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", pod.name)],
        pod.name,
    )


def predict_printer(pods: Collection[PodView], workers: Sequence[str]) -> str:
    """Return the pod that stands for the job before anything shows which one prints; "" without pods."""
    if workers:
        return next((pod.name for pod in pods if pod.host == workers[0]), workers[0])
    candidates = [pod for pod in pods if pod.live] or pods
    return min(candidates, key=lambda pod: printing_order(pod, workers)).name if candidates else ""


def _is_ahead(reading: Reading, training: Training) -> bool:
    """Return whether the line is of a later step than the newest line of the job."""
    if reading.epoch is not None and training.epoch is not None and reading.epoch != training.epoch:
        return reading.epoch > training.epoch
    return reading.step is not None and training.step is not None and reading.step > training.step


def _overlaps(time: int | None, training: Training) -> bool:
    """Return whether a line was printed while the printing pod printed; unknown times may overlap."""
    if time is None or training.last_time is None or training.first_time is None:
        return True
    return training.first_time - CLOCK_MARGIN <= time <= training.last_time + SILENCE
