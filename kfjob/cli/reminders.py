"""Messages that come again while a followed job does not go on: its stage before the first step, and its silence."""

from __future__ import annotations

from kfjob.cli.formatting import format_age
from kfjob.observe.silence import describe_last_lines, describe_silence, find_silence
from kfjob.observe.startup import Stage, StageKind, find_stage
from kfjob.observe.view import JobView
from kfjob.units import SECOND

STAGE_AFTER = 2 * SECOND
"""Duration of a stage before the first step after which it is worth a line."""
STAGE_EVERY = 15 * SECOND
"""Time between two lines about the same stage before the first step."""


class StageReminder:
    """What the job does before its first progress line, and since when."""

    def __init__(self) -> None:
        self._stage = Stage()
        self._since = self._next = 0

    def announce(self, view: JobView, *, job: str) -> str:
        """Return the stage with its duration: once it has lasted a moment, and again from time to time; else ""."""
        stage, now = find_stage(view, job=job), view.now or 0
        if not _is_same(stage, self._stage):
            self._since, self._next = now, now + STAGE_AFTER
        self._stage = stage
        if stage.kind is StageKind.NONE or now < self._next:
            return ""
        self._next = now + STAGE_EVERY
        return f"{stage} ({format_age(self._since, now)})"


def _is_same(stage: Stage, before: Stage) -> bool:
    return stage == before or (stage.kind is before.kind is StageKind.OUTPUT)


class SilenceReminder:
    """What the pods printed last, at the beginning of a silence and whenever its duration has doubled."""

    def __init__(self) -> None:
        self._next = 0.0  # seconds of silence after which the next message is due

    def announce(self, view: JobView) -> str:
        """Return the message that is due, on several lines; "" without one."""
        silence = find_silence(view)
        if silence is None or silence.seconds < self._next:
            self._next = self._next if silence else 0.0
            return ""
        self._next = 2 * silence.seconds
        return "\n".join((describe_silence(silence), *(f"    {text}" for text in describe_last_lines(silence))))
