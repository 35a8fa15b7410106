"""Why pods wait, have failed or do not exist, according to the pods' states, the cluster's events and the queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kfjob.joblog.events import TERMINATING, KubernetesEvent, PodPhase, WorkloadStatus
from kfjob.joblog.pods.state import PodView

_HARMLESS_REASONS = frozenset({"", "ContainerCreating", "PodInitializing", "Completed", TERMINATING})
_ROUTINE = frozenset({"Scheduled", "Pulled", "Created", "Started", "SuccessfulCreatePod", "SuccessfulCreateService"})
_OPERATOR_COPY = "Error pod "
"""First words of job events in which the operator repeats the states of its pods (v1.9.3 pkg/core/job.go)."""
MAX_EVENTS = 100
"""Distinct cluster events in memory; the oldest is dropped first."""


class PodProblem(Struct, frozen=True):
    """A pod that waits or has failed, with Kubernetes' reason."""

    pod: str
    reason: str
    message: str
    restarts: int


def find_pod_problems(pods: Iterable[PodView], events: Iterable[KubernetesEvent]) -> tuple[PodProblem, ...]:
    """Return the pods that crash, wait or have failed; the job's own phase may still be Running."""
    problems = []
    warnings = {event.name: event for event in events if event.warning and event.kind == "Pod"}  # the newest of each pod
    for pod in pods:
        state = pod.state
        if state is None or state.phase in {PodPhase.SUCCEEDED, PodPhase.DELETED} or state.ended_by_kfjob:
            continue
        if state.reason not in _HARMLESS_REASONS or state.phase is PodPhase.FAILED:
            reason = state.reason or (f"exit code {state.exit_code}" if state.exit_code is not None else str(state.phase))
            problems.append(PodProblem(pod.name, reason, state.message, state.restarts))
        elif state.phase is PodPhase.PENDING and pod.name in warnings:  # `ContainerCreating`, and a mount that fails
            warning = warnings[pod.name]
            problems.append(PodProblem(pod.name, warning.reason, warning.message, state.restarts))
    return tuple(problems)


def missing_pods_reason(workload: WorkloadStatus | None, events: Sequence[KubernetesEvent]) -> str:
    """Return why a job has no pods, according to its queue or the operator; "" if unknown."""
    if workload and not workload.admitted:
        return describe_queue_status(workload)
    warnings = [event for event in events if event.warning and event.kind == "PyTorchJob"]
    return f"{warnings[-1].reason}: {warnings[-1].message}" if warnings else ""


def describe_queue_status(status: WorkloadStatus) -> str:
    """Return the job's status in its queue in a few words."""
    if status.admitted:
        return f"admitted by `{status.cluster_queue or status.queue}`"
    reason = " ".join(part for part in (status.reason, status.message) if part)
    return f"waits in queue `{status.queue}`" + (f": {reason}" if reason else "")


def add_event(events: Sequence[KubernetesEvent], event: KubernetesEvent) -> tuple[KubernetesEvent, ...]:
    """Return the events by time with this one added; a repeated event replaces its earlier report.

    Routine events of healthy pods are left out, because they would push out the others.
    """
    if (not event.warning and event.reason in _ROUTINE) or event.message.startswith(_OPERATOR_COPY):
        return tuple(events)
    unique = {_key(item): item for item in events} | {_key(event): event}
    return tuple(sorted(unique.values(), key=lambda item: item.time or 0)[-MAX_EVENTS:])


def is_news(events: Iterable[KubernetesEvent], event: KubernetesEvent, pod: PodView | None) -> bool:
    """Return whether to report a warning: it is new, the pod's state does not show it, and the pod has not started since."""
    if not event.warning or event.message.startswith(_OPERATOR_COPY) or any(_key(item) == _key(event) for item in events):
        return False
    state = pod.state if pod else None
    if state is None:
        return True
    return (state.started or 0) <= (event.time or 0) and not (state.message and state.message in event.message)


def _key(event: KubernetesEvent) -> object:
    return event.uid or event
