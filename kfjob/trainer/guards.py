"""What to do with a step whose loss or gradient cannot be right. Every rank judges the same numbers, so all decide alike."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass
from typing import Literal

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec

WINDOW = 50
"""Losses that a spike is measured against."""
FEWEST = 10
"""With fewer than so many there is nothing to measure against."""
ROLL_BACKS = 3
"""In a row, without a good step further on; after them it is no accident."""

HINT = "a lower `lr`, a longer warm-up or `precision: fp32`"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What to do with a step, and why."""

    action: Literal["go on", "skip", "roll back"]
    why: str = ""


GO_ON = Verdict(action="go on")


class Guard:
    """Looks at each step before its update."""

    def __init__(self, spec: TrainSpec) -> None:
        """Act as the spec says."""
        self._on_nan, self._on_spike, self._factor = spec.on_nan, spec.on_spike, spec.spike_factor
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._overflows = spec.precision == "fp16"  # then an infinite gradient is the loss scale's affair
        self._rolled_back, self._furthest = 0, 0

    @property
    def every_step(self) -> bool:
        """Whether it must see steps that nobody else looks at; that has the host wait for the device at each."""
        return self._on_nan != "stop" or self._on_spike != "ignore"

    def judge(self, step: int, *, loss: float, grad_norm: float | None) -> Verdict:
        """Of the step that would become number `step`; the loss is of all ranks, the norm of the whole gradient.

        Raises:
            KfjobError: the step is bad, and the spec says to stop, or rolling back has not helped.
        """
        finite = math.isfinite(loss) and (grad_norm is None or self._overflows or math.isfinite(grad_norm))
        if not finite:
            what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {grad_norm}"
            return self._act(self._on_nan, step, what)
        usual = statistics.median(self._losses) if len(self._losses) >= FEWEST else None
        if self._on_spike != "ignore" and usual is not None and loss > self._factor * usual:
            return self._act(self._on_spike, step, f"the loss is {loss:.5f}, {loss / usual:.1f} times the usual")
        self._losses.append(loss)
        if step > self._furthest:
            self._rolled_back, self._furthest = 0, step
        return GO_ON

    def _act(self, choice: str, step: int, what: str) -> Verdict:
        if choice == "stop":
            raise KfjobError(f"{what} at step {step}", hint=HINT)
        if choice == "skip":
            return Verdict(action="skip", why=what)
        self._rolled_back += 1
        if self._rolled_back > ROLL_BACKS:
            cause = f"the run was rolled back {ROLL_BACKS} times and came no further than step {self._furthest}"
            raise KfjobError(f"{what} at step {step}", cause=cause, hint=HINT)
        return Verdict(action="roll back", why=what)
