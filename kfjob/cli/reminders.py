"""Messages that come again while a followed job does not go on: its stage before the first step, and its silence."""

from __future__ import annotations

from kfjob.base.units import SECOND
from kfjob.joblog.view.job_view import JobView, format_pause
from kfjob.joblog.view.silence import describe_last_lines, describe_silence, find_silence
from kfjob.joblog.view.stages import Stage, StageKind, find_stage

STAGE_AFTER = 2
"""Seconds that a stage without progress lasts before it is worth a line."""
STAGE_AGAIN = 15
"""Seconds after which a stage before the first step is said again."""
REMINDERS = (60, 120, 300, 600)
"""Seconds after which a stage or a silence is said again; from then on whenever they have doubled."""


def find_next_reminder(seconds: float) -> float:
    """Return the seconds at which something that has lasted for `seconds` is said again."""
    return next((limit for limit in REMINDERS if limit > seconds), 2 * seconds)


class StageReminder:
    """What the job does before its first progress line or at its end, and since when."""

    def __init__(self) -> None:
        self._stage = Stage()
        self._since = 0
        self._next = 0.0  # seconds in the stage after which the next message is due
        self._has_suggested = False  # a pattern for lines that are not read

    def announce(self, view: JobView, *, job: str) -> str:
        """Return the stage with its duration: once it has lasted a moment, and again from time to time; else ""."""
        stage, now = find_stage(view, job=job), view.now or 0
        if not _is_same(stage, self._stage):
            self._since, self._next = now, STAGE_AFTER
        self._stage = stage
        seconds = (now - self._since) / SECOND
        if stage.kind is StageKind.NONE or seconds < self._next:
            return ""
        is_early = stage.kind is not StageKind.REST and seconds < STAGE_AGAIN
        self._next = STAGE_AGAIN if is_early else find_next_reminder(seconds)
        return f"{stage} ({_describe_duration(stage, self._since, now)}){self._suggest(stage, view)}"

    def _suggest(self, stage: Stage, view: JobView) -> str:
        """Return the end of the first message about lines that are not read: a pattern for them."""
        if not stage.is_unread or self._has_suggested or view.unread_reported:
            return ""
        self._has_suggested = True
        return f"; {view.suggestion[1] if view.suggestion else '`progress:` in the spec takes a pattern for them'}"


def _describe_duration(stage: Stage, since: int, now: int) -> str:
    """Return `for 17 s`, or for a stage that begins with the workers `9 s after they started`."""
    if stage.started is None:
        return f"for {format_pause((now - since) / SECOND)}"
    return f"{format_pause(max(now - stage.started, 0) / SECOND)} after they started"


def _is_same(stage: Stage, before: Stage) -> bool:
    return stage == before or (stage.kind is before.kind is StageKind.OUTPUT)


class SilenceReminder:
    """What the pods printed last, at the beginning of a silence and rarely afterwards."""

    def __init__(self) -> None:
        self._next = 0.0  # seconds of silence after which the next message is due

    def announce(self, view: JobView) -> str:
        """Return the message that is due, on several lines; "" without one."""
        silence = find_silence(view)
        if silence is None or silence.seconds < self._next:
            self._next = self._next if silence else 0.0
            return ""
        self._next = find_next_reminder(silence.seconds)
        return "\n".join((describe_silence(silence), *(f"    {text}" for text in describe_last_lines(silence))))
