"""Why pods wait, have failed or do not exist, according to the pods' states, the cluster's events and the queue.

A pod starts in stages: a problem of one stage is over as soon as the pod shows a later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from kfjob.joblog.events import TERMINATING, KubernetesEvent, PodChanged, PodPhase, WorkloadStatus
from kfjob.joblog.pods.pod_view import PodView

_HARMLESS_REASONS = frozenset({"", "ContainerCreating", "PodInitializing", "Completed", TERMINATING})
_ROUTINE = frozenset({"Scheduled", "Pulled", "Created", "Started", "SuccessfulCreatePod", "SuccessfulCreateService"})
_OPERATOR_COPY = "Error pod "
"""First words of job events in which the operator repeats the states of its pods (v1.9.3 pkg/core/job.go)."""
_PARTS = frozenset({"Pod", "PersistentVolumeClaim"})
"""Kinds of objects whose events do not tell why there are no pods."""
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


def missing_pods_reason(
    workload: WorkloadStatus | None, events: Sequence[KubernetesEvent], pods: Iterable[PodView] = ()
) -> str:
    """Return why a job has no pods beyond `pods`, according to its queue or its controllers; "" if unknown.

    The events of a TrainJob's pods are about its Job.
    """
    if workload and not workload.admitted:
        return describe_queue_status(workload)
    if workload and workload.cluster:
        return f"MultiKueue runs the job in cluster `{workload.cluster}`; use the kubeconfig context of that cluster"
    newest = max((pod.state.created or 0 for pod in pods if pod.state), default=0)
    warnings = [event for event in events if event.warning and event.kind not in _PARTS and (event.time or 0) >= newest]
    return f"{warnings[-1].reason}: {warnings[-1].message}" if warnings else ""


def describe_queue_status(status: WorkloadStatus) -> str:
    """Return the job's status in its queue in a few words."""
    if status.admitted:
        place = f", and runs in cluster `{status.cluster}`" if status.cluster else ""
        return f"admitted by `{status.cluster_queue or status.queue}`{place}"
    reason = " ".join(part for part in (status.reason, status.message) if part)
    position = f" at position {status.position}" if status.position else ""
    return f"waits in queue `{status.queue}`{position}" + (f": {reason}" if reason else "")


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


class PodStage(IntEnum):
    """What a pod goes through before its container runs, in this order."""

    SCHEDULING = 1
    VOLUMES = 2
    SANDBOX = 3
    IMAGE = 4
    CONTAINER = 5


_BY_REASON = {
    **dict.fromkeys(("FailedScheduling", "Unschedulable", "SchedulingGated"), PodStage.SCHEDULING),
    **dict.fromkeys(("Scheduled", "SuccessfulAttachVolume"), PodStage.VOLUMES),
    **dict.fromkeys(("FailedAttachVolume", "FailedMount", "FailedMapVolume"), PodStage.VOLUMES),
    "NetworkNotReady": PodStage.VOLUMES,  # the kubelet looks at the network before it mounts the volumes
    "FailedCreatePodSandBox": PodStage.SANDBOX,
    **dict.fromkeys(("Pulling", "Pulled", "Failed", "BackOff", "InspectFailed"), PodStage.IMAGE),
    **dict.fromkeys(("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"), PodStage.IMAGE),
    **dict.fromkeys(("ImageInspectError", "RegistryUnavailable"), PodStage.IMAGE),
    **dict.fromkeys(("Created", "Started", "CreateContainerConfigError", "CreateContainerError"), PodStage.CONTAINER),
    **dict.fromkeys(("RunContainerError", "CrashLoopBackOff"), PodStage.CONTAINER),
}
"""Reasons of events and of waiting containers (Kubernetes v1.34); `ContainerCreating` shows nothing."""


def find_stage(reason: str) -> PodStage | None:
    """Return the stage in which a pod, or an event about it, has this reason; None if it shows none."""
    return _BY_REASON.get(reason)


def is_over(stage: PodStage, since: int, *, events: Mapping[PodStage, int], state: PodChanged | None) -> bool:
    """Return whether a problem of `stage` at `since` (ns) has ended: an event at that time or later, or the state, shows more.

    `events` has the newest time (ns) of the events that show each stage. A container may pull its image again, or be created
    again, so problems of these stages do not end.
    """
    if stage >= PodStage.IMAGE:
        return False
    if any(shown > stage and time >= since for shown, time in events.items()):
        return True
    if state is None:
        return False
    if state.phase in {PodPhase.RUNNING, PodPhase.SUCCEEDED} or state.exit_code is not None:
        return state.started is None or state.started >= since
    return (find_stage(state.reason) or (PodStage.VOLUMES if state.node else PodStage.SCHEDULING)) > stage
