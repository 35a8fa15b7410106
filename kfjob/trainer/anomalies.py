"""Detects steps whose loss or gradient norm is invalid. Every rank checks the same numbers, so all decide alike."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass
from typing import Literal

from kfjob.base.errors import KfjobError
from kfjob.base.text import format_decimal
from kfjob.trainspec.train_spec import TrainSpec

WINDOW = 50
"""Losses to compare a spike with."""
MIN_LOSSES = 10
"""With fewer losses a spike is not detected."""
MAX_ROLL_BACKS = 3
"""Consecutive roll-backs without progress before the run fails."""

MAX_SKIPS = 50
"""Consecutive skipped steps before the run fails; the model itself is then invalid."""

HINT = "use a lower `lr`, a longer warm-up or `precision: fp32`"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What to do with a step, and the reason."""

    action: Literal["accept", "skip", "roll back"]
    reason: str = ""
    repeated: bool = False
    """Whether the run made no progress since the roll-back before."""


ACCEPT = Verdict(action="accept")


class AnomalyDetector:
    """Judges steps by their loss and their gradient norm."""

    def __init__(self, spec: TrainSpec) -> None:
        """React to anomalies as the spec requires."""
        self._on_nan, self._on_spike, self._factor = spec.on_nan, spec.on_spike, spec.spike_factor
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self.ignores_infinite_norm = spec.precision == "fp16"  # the loss scaler handles overflows
        self.roll_backs = 0
        """Roll-backs since the run last made progress."""
        self._skips, self._furthest_step = 0, 0

    @property
    def needs_every_step(self) -> bool:
        """Whether to judge every step; the host then waits for the device at each step."""
        return self._on_nan != "stop" or self._on_spike != "ignore"

    @property
    def may_skip(self) -> bool:
        """Whether to judge a step before its update. After it is early enough for a stop, and for a roll-back."""
        return "skip" in (self._on_nan, self._on_spike)

    def check(self, step: int, *, loss: float, grad_norm: float, finite: bool = True) -> Verdict:
        """Decide about step number `step`; `loss` is of all ranks, `grad_norm` the global norm.

        `finite` tells whether both were finite on every rank at all steps since the last check.

        Raises:
            KfjobError: the step is invalid and the spec requires a stop, or repeated roll-backs brought no progress.
        """
        if problem := self._find_infinity(loss, grad_norm, finite=finite):
            return self._react(self._on_nan, step, problem)
        median = statistics.median(self._losses) if len(self._losses) >= MIN_LOSSES else None
        if self._on_spike != "ignore" and median is not None and loss > self._factor * median:
            return self._react(
                self._on_spike, step, f"the loss is {format_decimal(loss, 5)}, {loss / median:.1f} times the recent median"
            )
        self._losses.append(loss)
        self._skips = 0
        if step > self._furthest_step:
            self.roll_backs, self._furthest_step = 0, step
        return ACCEPT

    def _find_infinity(self, loss: float, grad_norm: float, *, finite: bool) -> str | None:
        """Return which of the numbers is not finite."""
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        if not self.ignores_infinite_norm and not math.isfinite(grad_norm):
            return f"the gradient norm is {grad_norm}"
        return None if finite else "the loss or the gradient norm was not finite since the last check"

    def _react(self, reaction: str, step: int, problem: str) -> Verdict:
        if reaction == "stop":
            raise KfjobError(f"{problem} at step {step}", hint=HINT)
        if reaction == "skip":
            self._skips += 1
            if self._skips > MAX_SKIPS:
                raise KfjobError(
                    f"{problem} at step {step}", cause=f"the {MAX_SKIPS} steps before it were skipped too", hint=HINT
                )
            return Verdict(action="skip", reason=problem)
        self.roll_backs += 1
        if self.roll_backs > MAX_ROLL_BACKS:
            cause = f"the run was rolled back {MAX_ROLL_BACKS} times and never passed step {self._furthest_step}"
            raise KfjobError(f"{problem} at step {step}", cause=cause, hint=HINT)
        return Verdict(action="roll back", reason=problem, repeated=self.roll_backs > 1)
