"""Collect the facts about a job for the decision of `guard.decision`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import json
from msgspec.structs import replace

from kfjob.api.diagnose import examine
from kfjob.api.reader import LiveReader
from kfjob.base.errors import KfjobError
from kfjob.base.parsing import ParseError, decode_json
from kfjob.base.units import SECOND
from kfjob.guard.decision import Facts, LostPod, Relaunch
from kfjob.joblog.diagnose.engine.aftermath import find_futile_restart
from kfjob.joblog.diagnose.engine.ranking import describe
from kfjob.joblog.events import NODE_NOT_READY, TERMINATING, JobPhase, JobSnapshot, KubernetesEvent, PodPhase, find_host
from kfjob.joblog.observe_config import RecoveryLimits
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.watchdog_limits import ExceededLimit
from kfjob.redaction import Redactor
from kfjob.redaction.structs import redact_struct

MAX_HISTORY = 20
"""Relaunches that a job remembers."""
CLOCK_SECONDS = 2
"""Difference between two times of the cluster in whole seconds that says nothing about their order."""

_NODE_REASONS = frozenset(
    {"NodeLost", "NodeShutdown", "Shutdown", NODE_NOT_READY, "TaintManagerEviction", "DeletionByTaintManager"}
)
_REMOVALS = frozenset({TERMINATING, "Evicted", "Preempting", "Preempted", "Killing", *_NODE_REASONS})
"""Reasons of pods and events that mean that a pod did not end by itself."""
_DIGITS = re.compile(r"\d{1,18}")


def collect_facts(
    reader: LiveReader,
    job: JobSnapshot,
    view: JobView,
    *,
    limit: ExceededLimit | None = None,
    has_lost_node: bool = False,
) -> Facts:
    """Return the facts, without secrets. `view` is what the guard has followed; the logs are read once more for the diagnosis.

    Raises:
        NotFound: the job is gone.
    """
    examination = examine(reader)
    events = [*view.cluster_events, *examination.view.cluster_events]
    futile = find_futile_restart(examination.history)
    is_local = reader.target.capabilities.runs_on_this_machine
    logs = examination.view
    steps = [step for step in (view.training.run_step, logs.training.run_step) if step is not None]
    recovery = reader.config.recovery or RecoveryLimits()
    facts = Facts(
        phase=view.phase or JobPhase.PENDING,
        launch=job.launch,
        recovery=replace(recovery, retries=min(recovery.retries, MAX_HISTORY)),  # whoever may change the job writes it
        first_cause=examination.diagnosis.first_cause,
        lost_pods=find_lost_pods(view, events),
        has_lost_node=has_lost_node,
        limit=limit,
        futile=f"a restart cannot cure this: {describe(futile, local=is_local)}" if futile else "",
        step=max(steps, default=None),
        checkpoint=find_checkpoint(view, logs),
        nodes={name: pod.state.node for name, pod in logs.pods.items() if pod.state},
        history=read_history(job.relaunches),
    )
    return redact_struct(facts, Redactor(reader.secrets))  # a decision is written into the cluster


def find_checkpoint(*views: JobView) -> int | None:
    """Return the step of the newest complete checkpoint that the logs of kfjob's trainer name; None without one."""
    names = [entry.name for view in views for entry in (view.checkpoint, view.resume) if entry and entry.name]
    steps = [int(numbers[-1]) for name in names if (numbers := _DIGITS.findall(name))]
    return max(steps, default=None)


def find_lost_pods(view: JobView, events: list[KubernetesEvent]) -> tuple[LostPod, ...]:
    """Return the pods that somebody or something removed, unless another pod had failed by itself before.

    After a failure the operator and people remove pods too.
    """
    lost = {pod.pod: (time, pod) for time, pod in _list_removals(view, events)}
    failed = [
        pod.state.last_ended
        for name, pod in view.pods.items()
        if name not in lost and pod.state and pod.state.phase is PodPhase.FAILED and pod.state.last_ended is not None
    ]
    latest = min(failed) + CLOCK_SECONDS * SECOND if failed else None
    return tuple(pod for time, pod in lost.values() if latest is None or (time is not None and time <= latest))


def _list_removals(view: JobView, events: list[KubernetesEvent]) -> Iterator[tuple[int | None, LostPod]]:
    """Yield each removed pod with the time of its removal; of one pod, the best explanation comes last."""
    hosts = {find_host(pod.state) if pod.state else name for name, pod in view.pods.items()}
    names = (set(view.config.workers) - hosts) | set(view.pods)
    nodes = {name: pod.state.node for name, pod in view.pods.items() if pod.state}
    ended = view.job.ended if view.job else None
    for name in sorted(names):
        state = view.pods[name].state if name in view.pods else None
        if state is None:
            yield None, LostPod(pod=name, why="the pod does not exist any more")
        elif state.phase is PodPhase.DELETED or state.reason in _REMOVALS:
            why = f"{state.reason}: {state.message}".strip(": ") or "the pod was deleted"
            is_node_fault = state.reason in _NODE_REASONS
            yield state.time, LostPod(pod=name, why=why, node=state.node, is_node_fault=is_node_fault)
    for event in sorted(events, key=lambda event: (event.reason in _NODE_REASONS, event.time or 0)):
        is_late = ended is not None and event.time is not None and event.time > ended + CLOCK_SECONDS * SECOND
        if event.kind == "Pod" and event.name in names and event.reason in _REMOVALS and not is_late:
            lost = LostPod(
                pod=event.name,
                why=f"{event.reason}: {event.message}".strip(": "),
                node=nodes.get(event.name, ""),
                is_node_fault=event.reason in _NODE_REASONS,
            )
            yield event.time, lost


def read_history(relaunches: str) -> tuple[Relaunch, ...]:
    """Return the guard's relaunches before a launch, from the record of the launch; none if somebody has damaged it."""
    try:
        return decode_json(relaunches, tuple[Relaunch, ...]) if relaunches else ()
    except (ParseError, KfjobError):
        return ()


def extend_history(history: tuple[Relaunch, ...], entry: Relaunch, *, now: int) -> str:
    """Return the history that the next launch carries."""
    return json.encode([*history, replace(entry, time=now)][-MAX_HISTORY:]).decode()
