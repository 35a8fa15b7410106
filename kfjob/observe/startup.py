"""What a job does before its first progress line, and what it waits for after its first pod has ended.

Both come from the states of its pods and the messages of agents and trainer.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kfjob.events import TERMINATING, JobPhase, PodPhase
from kfjob.observe.agent_records import AgentEventKind
from kfjob.observe.pods import PodView
from kfjob.observe.view import JobView
from kfjob.text import join_names, plural

OUTPUT = "the program has printed"
"""The stage in which the number of lines of the program grows begins with this."""


_MAX_NAMES = 3
"""Pods that the stage of an ending job names."""


class EndOfSome(Struct, frozen=True):
    """Some pods of a running job have ended with success, and others have not."""

    ended: tuple[str, ...]
    waiting_for: tuple[str, ...]

    def __str__(self) -> str:
        """Return ``train-worker-0` has ended; waiting for `train-worker-1``."""
        ended, waiting = (join_names(f"`{name}`" for name in names) for names in (self.ended, self.waiting_for))
        return f"{ended} {'has' if len(self.ended) == 1 else 'have'} ended; waiting for {waiting}"


def find_end_of_some(view: JobView) -> EndOfSome | None:
    """Return which pods have ended while the job runs on, and which have not; None if none or all have."""
    if view.phase not in {JobPhase.RUNNING, JobPhase.RESTARTING}:
        return None
    ended = tuple(sorted(pod.name for pod in view.pods.values() if pod.finished))
    waiting_for = tuple(sorted(pod.name for pod in view.pods.values() if not pod.finished and pod.live))
    return EndOfSome(ended, waiting_for) if ended and waiting_for else None


def describe_stage(view: JobView, *, job: str = "JOB") -> str:
    """Return what the job does before its first progress line, or what it waits for at its end.

    `job` is the name for the commands in the text.
    """
    return describe_ending(view) or describe_startup(view, job) or str(find_end_of_some(view) or "")


def describe_ending(view: JobView) -> str:
    """Return which pods have been told to end and still run, and how long they may; "" if there are none."""
    pods = {name: pod.state for name, pod in view.pods.items() if pod.state and pod.state.reason == TERMINATING}
    if not pods or (view.phase and view.phase.ended):
        return ""
    message = next(iter(pods.values())).message
    return f"waiting for {join_names((f'`{name}`' for name in sorted(pods)), limit=_MAX_NAMES)} to end: {message}"


def describe_startup(view: JobView, job: str) -> str:
    """Return in a few words what the job does; "" once it has printed progress or its outcome, or does not run."""
    if view.phase not in {JobPhase.PENDING, JobPhase.RUNNING, JobPhase.RESTARTING} or view.training.lines:
        return ""
    if view.outcome or any(news.kind == AgentEventKind.SUCCEEDED for news in view.news):
        return ""
    pods = list(view.pods.values())
    total = max(len(view.config.workers), len(pods))
    running = [pod for pod in pods if pod.phase is PodPhase.RUNNING]
    if running and len(running) == total:
        return _describe_pods(view, running, job)
    has_ended = any(not pod.live for pod in pods)
    return f"waiting for pods: {len(running)} of {total} running" if total and not has_ended else ""


def _describe_pods(view: JobView, pods: Sequence[PodView], job: str) -> str:
    """Return what the pods do; all of them run."""
    if view.start:
        return "the trainer has built the model; the first step reads data and compiles"
    agents = sum(pod.log.launch is not None for pod in pods)
    joined = sum(pod.log.result is not None for pod in pods)
    if joined == len(pods):
        return _describe_output(sum(pod.log.program_lines for pod in pods), job)
    if agents:
        return f"rendezvous: {agents} of {len(pods)} agents have started" + (f", {joined} joined" if joined else "")
    if not any(pod.log.lines for pod in pods):
        return "the pods run and have printed nothing; importing torch takes some seconds"
    has_agent = any(pod.log.agent_lines for pod in pods)
    return "" if has_agent else _describe_output(sum(pod.log.program_lines for pod in pods), job)


def _describe_output(lines: int, job: str) -> str:
    """Return how many lines the program has printed, none of which is progress."""
    if not lines:
        return "the workers have started; the program has printed nothing yet"
    return f"{OUTPUT} {plural(lines, 'line')}; none is read as progress; see `kfjob progress {job}`"
