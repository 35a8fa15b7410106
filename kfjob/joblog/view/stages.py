"""What a job does before its first progress line, and what it waits for after its first pod has ended.

Both come from the states of its pods and the messages of agents and trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from kfjob.base.text import join_names, plural
from kfjob.base.units import SECOND
from kfjob.joblog.events import NODE_NOT_READY, TERMINATING, JobPhase, PodPhase
from kfjob.joblog.pods.pod_view import PodView
from kfjob.joblog.view.job_view import JobView

_MAX_NAMES = 3
"""Pods that the stage of an ending job names."""
_START_LINES = 100
"""Lines of a program that may all come before its first progress line."""
_START_SECONDS = 120.0
"""Seconds in which a program may print no progress."""


class StageKind(StrEnum):
    """What a job does while it prints no progress."""

    STARTUP = "startup"  # pods, agents or workers start
    OUTPUT = "output"  # the program prints lines that are no progress: their number grows
    ENDING = "ending"  # pods have been told to end
    REST = "rest"  # some pods have ended
    NONE = "none"


class Stage(Struct, frozen=True):
    """A stage of a job, in a few words; the words of `OUTPUT` change with each line."""

    kind: StageKind = StageKind.NONE
    text: str = ""
    started: int | None = None  # when the pods or the workers started, in a stage that begins with them
    is_unread: bool = False  # it has printed more than a program does before its first step

    def __str__(self) -> str:
        """Return the words; "" without a stage."""
        return self.text


class PartialEnd(Struct, frozen=True):
    """Some pods of a running job have ended with success, and others have not."""

    ended: tuple[str, ...]
    waiting_for: tuple[str, ...]

    def __str__(self) -> str:
        """Return which training processes have ended, and which pods the job waits for; an ended pod's agent may still run."""
        ended, waiting = (join_names(f"`{name}`" for name in names) for names in (self.ended, self.waiting_for))
        return f"the training processes of {ended} have ended; waiting for {waiting}"


def find_partial_end(view: JobView) -> PartialEnd | None:
    """Return which pods have ended while the job runs on, and which have not; None if none or all have."""
    if view.phase not in {JobPhase.RUNNING, JobPhase.RESTARTING}:
        return None
    ended = tuple(sorted(pod.name for pod in view.pods.values() if pod.has_succeeded))
    waiting_for = tuple(sorted(pod.name for pod in view.pods.values() if not pod.has_succeeded and pod.live))
    return PartialEnd(ended, waiting_for) if ended and waiting_for else None


def find_stage(view: JobView, *, job: str = "JOB") -> Stage:
    """Return what the job does before its first progress line, or what it waits for at its end.

    `job` is the name for the commands in the text.
    """
    if ending := describe_ending(view):
        return Stage(StageKind.ENDING, ending)
    if (startup := _find_startup(view)).text:
        return startup
    if joining := describe_joining(view):
        return Stage(StageKind.STARTUP, joining)
    rest = find_partial_end(view)
    advice = f"if the program still needs the ended ranks, `kfjob stop {job}` ends the job"
    return Stage(StageKind.REST, f"{rest}; {advice}") if rest else Stage()


def describe_ending(view: JobView) -> str:
    """Return which pods have been told to end and still run, and how long they may; "" if there are none."""
    pods = {name: pod.state for name, pod in view.pods.items() if pod.state and pod.state.reason == TERMINATING}
    if not pods or (view.phase and view.phase.ended):
        return ""
    message = next(iter(pods.values())).message
    return f"waiting for {join_names((f'`{name}`' for name in sorted(pods)), limit=_MAX_NAMES)} to end: {message}"


def describe_joining(view: JobView) -> str:
    """Return which pods wait to join a round after training had begun, or that the new round has no progress yet; else ""."""
    if not view.is_current or not view.training.lines or not view.is_between_rounds:
        return ""
    if not view.joining:
        return "the training processes have begun again; no progress yet"
    names = join_names((f"`{name}`" for name in view.joining), limit=_MAX_NAMES)
    joined = sum(pod.log.result is not None and not pod.log.is_joining for pod in view.pods.values() if pod.live)
    waits = "waits" if len(view.joining) == 1 else "wait"
    total = max(len(view.config.workers), len(view.pods))
    return f"rendezvous: {names} {waits} to join; {joined} of {plural(total, 'pod')} in a round"


def _find_startup(view: JobView) -> Stage:
    """Return what the job does; no stage once it has printed progress or its outcome, an agent has ended, or it does not run.

    Who begins to follow a job reads its logs one after the other: until all are read, the view is one of the past, and the job
    may have trained for long. So only a current view has a stage.
    """
    if view.phase not in {JobPhase.PENDING, JobPhase.RUNNING, JobPhase.RESTARTING} or not view.is_current:
        return Stage()
    if view.training.lines or any(pod.has_progress for pod in view.pods.values()):
        return Stage()
    if view.outcome or any(pod.has_succeeded or pod.log.has_failed for pod in view.pods.values()):
        return Stage()
    pods = list(view.pods.values())
    total = max(len(view.config.workers), len(pods))
    running = [pod for pod in pods if pod.phase is PodPhase.RUNNING]
    if any(pod.state and pod.state.reason == NODE_NOT_READY for pod in running):
        return Stage()  # its log cannot be read
    if running and len(running) == total:
        return _find_stage_of_pods(view, running)
    has_ended = any(not pod.live for pod in pods)
    waits = total and not has_ended
    return Stage(StageKind.STARTUP, f"waiting for pods: {len(running)} of {total} running") if waits else Stage()


def _find_stage_of_pods(view: JobView, pods: Sequence[PodView]) -> Stage:
    """Return what the pods do; all of them run."""
    if view.start:
        return Stage(StageKind.STARTUP, "the trainer has built the model; the first step reads data and compiles")
    agents = sum(pod.log.launch is not None for pod in pods)
    started = max((pod.state.started for pod in pods if pod.state and pod.state.started), default=None)
    joined = sum(pod.log.result is not None for pod in pods)
    if joined == len(pods):
        starts = [pod.log.result_line.resolve_time(view.reference_time) for pod in pods if pod.log.result_line]
        since = max((start for start in starts if start is not None), default=None)
        return _find_stage_of_program(view, pods, since)
    if agents:
        text = f"rendezvous: {agents} of {len(pods)} agents have started" + (f", {joined} joined" if joined else "")
        return Stage(StageKind.STARTUP, text, started)
    if not any(pod.log.lines for pod in pods):
        return Stage(StageKind.STARTUP, "the pods run and have printed nothing; importing torch takes some seconds", started)
    has_agent = any(pod.log.agent_lines for pod in pods)
    return Stage() if has_agent else _find_stage_of_program(view, pods)


def _find_stage_of_program(view: JobView, pods: Sequence[PodView], since: int | None = None) -> Stage:
    """Return how many lines the program has printed, none of which is progress; the workers started at `since`.

    The first lines of most programs are about their settings, so few lines in a short time say nothing.
    """
    lines = sum(pod.log.program_lines for pod in pods)
    if not lines:
        return Stage(StageKind.STARTUP, "the workers have started; the program has printed nothing yet", since)
    text = f"the program has printed {plural(lines, 'line')}"
    is_new = since is None or view.now is None or view.now - since < _START_SECONDS * SECOND
    if lines < _START_LINES and is_new:
        return Stage(StageKind.OUTPUT, f"{text}, no progress yet")
    return Stage(StageKind.OUTPUT, f"{text}; none is read as progress", is_unread=True)
