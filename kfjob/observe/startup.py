"""What a job does before its first progress line, from the states of its pods and the messages of agents and trainer."""

from __future__ import annotations

from collections.abc import Sequence

from kfjob.events import JobPhase, PodPhase
from kfjob.observe.agent_records import AgentEventKind
from kfjob.observe.pods import PodView
from kfjob.observe.view import JobView


def describe_startup(view: JobView) -> str:
    """Return in a few words what the job does; "" once it has printed progress or its outcome, or does not run."""
    if view.phase not in {JobPhase.PENDING, JobPhase.RUNNING, JobPhase.RESTARTING} or view.training.lines:
        return ""
    if view.outcome or any(news.kind == AgentEventKind.SUCCEEDED for news in view.news):
        return ""
    pods = list(view.pods.values())
    total = max(len(view.config.workers), len(pods))
    running = [pod for pod in pods if pod.phase is PodPhase.RUNNING]
    if running and len(running) == total:
        return _describe_pods(view, running)
    has_ended = any(not pod.live for pod in pods)
    return f"waiting for pods: {len(running)} of {total} running" if total and not has_ended else ""


def _describe_pods(view: JobView, pods: Sequence[PodView]) -> str:
    """Return what the pods do; all of them run."""
    if view.start:
        return "the trainer has built the model; the first step reads data and compiles"
    agents = sum(pod.log.launch is not None for pod in pods)
    joined = sum(pod.log.result is not None for pod in pods)
    if joined == len(pods):
        return "the workers have started; the program has printed no progress yet"
    if agents:
        return f"rendezvous: {agents} of {len(pods)} agents have started" + (f", {joined} joined" if joined else "")
    is_silent = not any(pod.log.lines for pod in pods)
    return "the pods run and have printed nothing; importing torch takes some seconds" if is_silent else ""
