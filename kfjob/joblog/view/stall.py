"""When a running job counts as stalled: it prints no progress for much longer than it did before."""

from __future__ import annotations

from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.progress.training import Training

MIN_LINES = 5
"""Progress lines after which the pauses between them say what is usual."""
PAUSES = 10
"""Times the longest pause so far: a checkpoint or an evaluation makes a pause too."""
MIN_SECONDS = 120
"""Shortest time without progress that counts as a stall."""


def find_stall_limit(training: Training, config: ObserveConfig) -> float:
    """Return the seconds without progress that count as a stall.

    It is the watchdog's limit. Without one it is that of the configuration, or less if the job prints progress often.
    """
    if config.limits.stall is not None:
        return config.limits.stall
    limit = config.stall_after
    if training.longest_pause is None or training.lines < MIN_LINES:
        return limit
    return min(limit, max(PAUSES * training.longest_pause, MIN_SECONDS))


def format_pause(seconds: float) -> str:
    """Return `61 s` or `4 min`."""
    return f"{seconds // 60:.0f} min" if seconds >= MIN_SECONDS else f"{seconds:.0f} s"
