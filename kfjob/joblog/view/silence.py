"""What the pods and ranks of a running job printed last, when the job is silent for longer than before.

A job that waits in a collective prints nothing. Long before the time at which that counts as a stall, its last lines show where
each rank is, and which ranks reported fewer steps than the others. None of it is called a failure here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kfjob.base.common_types import Identifier
from kfjob.base.text import join_names
from kfjob.base.units import SECOND
from kfjob.joblog.agents.agent_log import find_agent_message
from kfjob.joblog.events import JobPhase, PodPhase
from kfjob.joblog.master.evidence import describe_ranks
from kfjob.joblog.view.job_view import JobView, format_pause
from kfjob.redaction import cut_text

MIN_SECONDS = 10
"""Shortest silence that is worth a word."""
PAUSES = 3
"""Times the longest pause so far: a shorter silence is usual."""
SECONDS_WITHOUT_PAUSES = 30
"""Silence that is worth a word if no two progress lines show how long a pause is."""
START_SECONDS = 300
"""The same for a program that has printed nothing since its start or restart: it imports, reads data and compiles."""
PY_SPY = "`py-spy dump --pid PID` shows where a process is (`pip install py-spy` installs it)"
PY_SPY_IN_POD = "`pip install py-spy` and `py-spy dump --pid PID` in a pod show where a process is"
MAX_LAST_LINES = 8
"""Last lines to show: first those of ranks that lag, then those of the pods with the longest silence."""
MAX_TEXT = 200
"""Characters of a quoted line."""
NO_OUTPUT = "the program has printed nothing yet"
"""Stands for the last line of a pod in which only torchrun's agent has printed."""
_MAX_NAMES = 3
"""Pods to name in a message about ranks that lag."""


class LastLine(Struct, frozen=True, kw_only=True):
    """The last line of a rank, or of a pod whose lines name no rank."""

    pod: Identifier
    rank: int | None = None
    step: int | None = None  # the newest one that it reported
    text: str = ""
    time: int | None = None

    def __str__(self) -> str:
        """Return ``job-worker-1`, rank 1`."""
        return f"`{self.pod}`" + (f", rank {self.rank}" if self.rank is not None else "")


class Silence(Struct, frozen=True, kw_only=True):
    """A running job that prints nothing for longer than before."""

    seconds: float  # since the newest progress line, or since the newest line of a job without progress
    limit: float  # seconds after which it counts as a stall
    stops: bool  # the job is stopped then
    has_progress: bool
    last_lines: tuple[LastLine, ...]
    behind: tuple[LastLine, ...] = ()  # of those that reported fewer steps than others
    is_limit_waiting: bool = False  # there is a watchdog, which counts only from the first line of progress
    time: int  # of the observation
    ranks: tuple[int, ...] = ()  # of the live pods
    local: bool = False  # the job runs on the local backend

    @property
    def step(self) -> int | None:
        """The highest step that a rank reported."""
        return max((line.step for line in self.last_lines if line.step is not None), default=None)


def find_silence(view: JobView, last_lines: Iterable[LastLine] | None = None) -> Silence | None:
    """Return the silence of a running job; None if its pauses are usual. `last_lines` replaces those that the view knows."""
    if view.phase is not JobPhase.RUNNING or view.now is None or view.awaits_restart or view.has_agents_success:
        return None
    if any(pod.phase is PodPhase.PENDING for pod in view.pods.values()):
        return None  # the others wait for it
    lines = tuple(read_last_lines(view) if last_lines is None else last_lines)
    has_progress = bool(view.training.lines)
    seconds = view.seconds_since_progress if has_progress else _find_seconds(lines, view.now)
    if seconds is None or seconds < _find_usual_pause(view, lines):
        return None
    limit = view.stall_limit
    behind = _find_behind(lines)
    shown = sorted(lines, key=lambda line: (line not in behind, line.time or 0))
    return Silence(
        seconds=seconds,
        limit=limit,
        stops=view.config.limits.stall is not None and has_progress,
        is_limit_waiting=view.config.limits.stall is not None and not has_progress,
        has_progress=has_progress,
        last_lines=tuple(shown),
        behind=behind,
        time=view.now,
        ranks=tuple(sorted(rank for pod in view.pods.values() if pod.live for rank in pod.global_ranks)),
        local=view.local,
    )


def read_last_lines(view: JobView) -> Iterable[LastLine]:
    """Yield the last line of each live pod, as far as no filter has left it out."""
    for pod in view.pods.values():
        line, ranks = pod.log.last_line, pod.global_ranks
        if line is not None and pod.live:
            reading = pod.log.reading
            step = reading.step if reading and reading.epoch is None else None  # it may count per epoch
            rank = ranks[0] if len(ranks) == 1 else None
            text = "" if find_agent_message(line.text) is not None else cut_text(line.text.strip(), MAX_TEXT)
            yield LastLine(pod=pod.name, rank=rank, step=step, text=text, time=line.time)


def describe_next_step(silence: Silence) -> str:
    """Return which ranks printed nothing, if no rank printed progress, and where to look next."""
    step = PY_SPY if silence.local else PY_SPY_IN_POD
    return "; ".join(filter(None, (_describe_silent_ranks(silence), step)))


def _describe_silent_ranks(silence: Silence) -> str:
    """Return `rank 1 printed nothing`; "" if all ranks did, or if the lines do not tell."""
    if silence.has_progress or any(line.text and line.rank is None for line in silence.last_lines):
        return ""
    silent = set(silence.ranks) - {line.rank for line in silence.last_lines if line.text}
    return f"{describe_ranks(silent).removeprefix('global ')} printed nothing" if silent else ""


def describe_silence(silence: Silence) -> str:
    """Return `no progress for 48 s (a stall after 20 min; the job runs on); rank 1 reported step 38, others step 39`."""
    what = "no progress" if silence.has_progress else "no output"
    is_shown = silence.seconds <= silence.limit or silence.is_limit_waiting
    limit = f" ({_describe_limit(silence)})" if is_shown else ""
    return "; ".join(filter(None, (f"{what} for {format_pause(silence.seconds)}{limit}", describe_behind(silence))))


def _describe_limit(silence: Silence) -> str:
    """Return what happens at the limit: a stall is only a word unless the job has a watchdog."""
    if silence.is_limit_waiting:
        return "`watchdog.stall` counts from the first line of progress, and none was read"
    limit = format_pause(silence.limit)
    return f"`watchdog.stall` stops the job after {limit}" if silence.stops else f"a stall after {limit}; the job runs on"


def describe_behind(silence: Silence) -> str:
    """Return which ranks reported fewer steps than others; "" if none did."""
    if not silence.behind:
        return ""
    steps = sorted({line.step for line in silence.behind if line.step is not None})
    reported = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    return f"{_name(silence.behind)} reported {reported}, others step {silence.step}"


def describe_last_lines(silence: Silence) -> list[str]:
    """Return one text for each of the last lines to show: ``job-worker-1`, rank 1, 48 s ago: waiting for shard 7`."""
    texts = []
    for line in silence.last_lines[:MAX_LAST_LINES]:
        age = "" if line.time is None else f", {format_pause(max(silence.time - line.time, 0) / SECOND)} ago"
        step = "" if line.step is None else f", step {line.step}"
        texts.append(f"{line}{step}{age}: {line.text or NO_OUTPUT}")
    left_out = len(silence.last_lines) - MAX_LAST_LINES
    return [*texts, f"and {left_out} more"] if left_out > 0 else texts


def _name(lines: Sequence[LastLine]) -> str:
    ranks = [line.rank for line in lines if line.rank is not None]
    if len(ranks) == len(lines):
        return describe_ranks(ranks).removeprefix("global ")
    return join_names((f"`{line.pod}`" for line in lines), limit=_MAX_NAMES)


def _find_seconds(lines: Sequence[LastLine], now: int) -> float | None:
    """Return the seconds since the newest of the lines; None if it is unknown."""
    newest = max((line.time for line in lines if line.time is not None), default=None)
    return None if newest is None else max(now - newest, 0) / SECOND


def _find_usual_pause(view: JobView, lines: Iterable[LastLine]) -> float:
    """Return the seconds without progress that are usual in this job."""
    pause = view.training.longest_pause
    usual = SECONDS_WITHOUT_PAUSES if pause is None else max(MIN_SECONDS, PAUSES * pause)
    starts = view.is_between_rounds or not any(line.text for line in lines)
    return max(usual, START_SECONDS) if starts else usual


def _find_behind(lines: Sequence[LastLine]) -> tuple[LastLine, ...]:
    """Return the lines of the ranks that reported steps, and fewer than others did."""
    highest = max((line.step for line in lines if line.step is not None), default=0)
    return tuple(line for line in lines if line.step is not None and line.step < highest)
