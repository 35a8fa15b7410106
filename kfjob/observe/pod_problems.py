"""Why pods wait, have failed, or are not there at all: in the words of whoever knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kfjob.events import KubernetesEvent, PodPhase, WorkloadStatus
from kfjob.observe.pods import PodView

_HARMLESS_REASONS = frozenset({"", "ContainerCreating", "PodInitializing", "Completed"})
_ROUTINE = frozenset({"Scheduled", "Pulled", "Created", "Started", "SuccessfulCreatePod", "SuccessfulCreateService"})
_ECHO = "Error pod "
"""The operator repeats so, in events of the job, what the states of its pods say (v1.9.3 pkg/core/job.go)."""
KEPT_EVENTS = 100
"""Of the cluster's events that tell different things, the newest."""


class PodProblem(Struct, frozen=True):
    """A pod that waits or has failed, and Kubernetes' word for why."""

    pod: str
    reason: str
    message: str
    restarts: int


def find_pod_problems(pods: Iterable[PodView], recorded: Iterable[KubernetesEvent]) -> tuple[PodProblem, ...]:
    """Pods that crash, wait for something, or have failed: also where the job's own phase says Running."""
    found = []
    warned = {one.name: one for one in recorded if one.warning and one.kind == "Pod"}  # the newest of each
    for pod in pods:
        state = pod.state
        if state is None or state.phase in {PodPhase.SUCCEEDED, PodPhase.DELETED}:
            continue
        if state.reason not in _HARMLESS_REASONS or state.phase is PodPhase.FAILED:
            reason = state.reason or (f"exit code {state.exit_code}" if state.exit_code is not None else str(state.phase))
            found.append(PodProblem(pod.name, reason, state.message, state.restarts))
        elif state.phase is PodPhase.PENDING and pod.name in warned:  # `ContainerCreating`, and a mount that fails
            found.append(PodProblem(pod.name, warned[pod.name].reason, warned[pod.name].message, state.restarts))
    return tuple(found)


def missing_pods_reason(workload: WorkloadStatus | None, recorded: Sequence[KubernetesEvent]) -> str:
    """Why a job has no pods, as its queue or the operator tells; "" if nobody does."""
    if workload and not workload.admitted:
        return describe_queue_status(workload)
    failed = [one for one in recorded if one.warning and one.kind == "PyTorchJob"]
    return f"{failed[-1].reason}: {failed[-1].message}" if failed else ""


def describe_queue_status(status: WorkloadStatus) -> str:
    """A job's place in a queue, in a few words."""
    if status.admitted:
        return f"admitted by `{status.cluster_queue or status.queue}`"
    why = " ".join(part for part in (status.reason, status.message) if part)
    return f"waits in queue `{status.queue}`" + (f": {why}" if why else "")


def add_event(recorded: Sequence[KubernetesEvent], event: KubernetesEvent) -> tuple[KubernetesEvent, ...]:
    """The events by time with one more; the same one again takes the place of what it said before.

    What happens to every pod that is well would crowd out the rest, and is left out.
    """
    if (not event.warning and event.reason in _ROUTINE) or event.message.startswith(_ECHO):
        return tuple(recorded)
    known = {_key(one): one for one in recorded} | {_key(event): event}
    return tuple(sorted(known.values(), key=lambda one: one.time or 0)[-KEPT_EVENTS:])


def is_news(recorded: Iterable[KubernetesEvent], event: KubernetesEvent, pod: PodView | None) -> bool:
    """Whether a warning is worth a line: not told before, not told by the pod's state, not overcome by its start."""
    if not event.warning or event.message.startswith(_ECHO) or any(_key(one) == _key(event) for one in recorded):
        return False
    state = pod.state if pod else None
    if state is None:
        return True
    return (state.started or 0) <= (event.time or 0) and not (state.message and state.message in event.message)


def _key(event: KubernetesEvent) -> object:
    return event.uid or event
