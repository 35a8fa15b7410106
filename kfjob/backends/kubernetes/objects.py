"""Objects of the API, as raw JSON, to what a backend reports. Pure.

The states of jobs are the operator's conditions (v1.9.3, pkg/util/status.go), those of pods the kubelet's (core/v1). Fields
that an older or newer server leaves out are taken as absent, never as an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypedDict

from kfjob.events import TRAINING_CONTAINER, JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase
from kfjob.spec import api_objects, names

Object = dict[str, Any]


class _Metadata(TypedDict, total=False):
    name: Any
    uid: Any
    labels: Any
    ownerReferences: Any
    creationTimestamp: Any
    deletionTimestamp: Any


class _Spec(TypedDict, total=False):
    nodeName: Any


class _Status(TypedDict, total=False):
    phase: Any
    reason: Any
    message: Any
    hostIP: Any
    podIP: Any
    conditions: Any
    containerStatuses: Any
    initContainerStatuses: Any


class _Pod(TypedDict, total=False):
    metadata: _Metadata
    spec: _Spec
    status: _Status


class PodList(TypedDict, total=False):
    """Of a list of pods as much as `pod_changed`, `owner` and `launch_of` read: a third of it, and decoded in as much time."""

    items: list[_Pod] | None


_PHASES = {
    "Created": JobPhase.PENDING,
    "Running": JobPhase.RUNNING,
    "Restarting": JobPhase.RESTARTING,
    "Suspended": JobPhase.SUSPENDED,
    "Succeeded": JobPhase.SUCCEEDED,
    "Failed": JobPhase.FAILED,
}


def parse_time(text: str | None) -> int | None:
    """A time of the API, which has seconds or microseconds, in nanoseconds since the epoch."""
    if not text:
        return None
    at = datetime.fromisoformat(text)
    return int(at.timestamp()) * 1_000_000_000 + at.microsecond * 1000


def launch_of(thing: Object) -> str:
    """Which launch a job or what belongs to it is of, "" if kfjob did not submit it."""
    return (thing["metadata"].get("labels") or {}).get(api_objects.LABEL_LAUNCH) or ""


def snapshot(job: Object, pods: list[Object] | None = None, *, now: int) -> JobSnapshot:
    """A job, and those of `pods` that are its own."""
    metadata = job["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return JobSnapshot(
        name=metadata["name"],
        namespace=metadata["namespace"],
        job=job_changed(job, now=now),
        pods=own_pods(pods or (), metadata["uid"], now=now),
        uid=metadata["uid"],
        launch=launch_of(job),
        image=_image(job),
        spec=annotations.get(api_objects.ANNOTATION_SPEC),
        manifest=annotations.get(api_objects.ANNOTATION_MANIFEST),
        labels=dict(labels),
    )


def snapshot_of_pods(name: str, namespace: str, pods: list[Object], *, now: int) -> JobSnapshot | None:
    """A job as its pods alone tell it, None if no PyTorchJob owns any; after another one of its name, the newer."""
    made = [pod for pod in pods if owner(pod)]
    if not made:
        return None
    newest = max(made, key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
    own = own_pods(made, owner(newest), now=now)
    phase = _phase_of_pods({pod.phase for pod in own})
    ends = [pod.last_ended for pod in own if phase.ended and pod.last_ended is not None]
    return JobSnapshot(
        name=name,
        namespace=namespace,
        job=JobChanged(
            phase=phase,
            created=min((pod.created for pod in own if pod.created is not None), default=None),
            ended=max(ends, default=None),
            time=now,
        ),
        pods=own,
        uid=owner(newest),
        launch=launch_of(newest),
    )


def _phase_of_pods(phases: set[PodPhase]) -> JobPhase:
    """What the operator would most likely say."""
    if phases & {PodPhase.RUNNING, PodPhase.UNKNOWN}:
        return JobPhase.RUNNING
    if PodPhase.PENDING in phases:
        return JobPhase.PENDING
    return JobPhase.FAILED if PodPhase.FAILED in phases else JobPhase.SUCCEEDED


def own_pods(pods: Iterable[Object], uid: str, *, now: int) -> tuple[PodChanged, ...]:
    """Those of the job with that uid, in their order."""
    own = [pod_changed(pod, now=now) for pod in pods if owner(pod) == uid]
    return tuple(sorted(own, key=lambda pod: (pod.replica_type, pod.replica_index, pod.pod)))


def job_changed(job: Object, *, now: int) -> JobChanged:
    """The job's state, as its controller tells it."""
    status = job.get("status") or {}
    condition = newest_condition(status.get("conditions") or [])
    phase = _PHASES[condition["type"]] if condition else JobPhase.PENDING
    ended = parse_time(status.get("completionTime"))
    if phase.ended and ended is None and condition:  # the operator writes a completion time for successes only
        ended = parse_time(condition.get("lastTransitionTime"))
    return JobChanged(
        phase=phase,
        reason=condition.get("reason", "") if condition else "",
        message=condition.get("message", "") if condition else "",
        created=parse_time(job["metadata"].get("creationTimestamp")),
        started=parse_time(status.get("startTime")),
        ended=ended if phase.ended else None,
        time=now,
    )


def newest_condition(conditions: list[Object]) -> Object | None:
    """The condition that says where the job is: an end, else the newest that is true.

    The operator appends, and takes a condition out before it appends the one that contradicts it, so the order of the list
    decides between conditions of the same second.
    """
    true = [one for one in conditions if one.get("status") == "True" and one.get("type") in _PHASES]
    for one in reversed(true):
        if _PHASES[one["type"]].ended:
            return one
    return max(enumerate(true), key=lambda at: (at[1].get("lastTransitionTime") or "", at[0]), default=(0, None))[1]


def owner(thing: Object) -> str:
    """The uid of the PyTorchJob that owns it, "" for none."""
    references = thing["metadata"].get("ownerReferences") or []
    return next((one.get("uid", "") for one in references if one.get("kind") == api_objects.PYTORCHJOB), "")


def owned(thing: Object, job: str, uid: str) -> Object:
    """`thing` as a part of that PyTorchJob, which goes when the job goes."""
    kind = {"apiVersion": api_objects.PYTORCHJOB_API_VERSION, "kind": api_objects.PYTORCHJOB}
    reference = {**kind, "name": job, "uid": uid, "controller": False, "blockOwnerDeletion": True}
    return {**thing, "metadata": {**thing["metadata"], "ownerReferences": [reference]}}


def will_have(job: Object, pod: str) -> bool:
    """Whether the operator will make a pod of that name for the job, or has made it."""
    replicas = (job.get("spec") or {}).get("pytorchReplicaSpecs") or {}
    wanted = ((kind, (spec or {}).get("replicas", 1)) for kind, spec in replicas.items())
    made = (names.pod_name(job["metadata"]["name"], kind, index) for kind, count in wanted for index in range(count))
    return not job_changed(job, now=0).phase.ended and pod in made


def pod_changed(pod: Object, *, now: int) -> PodChanged:
    """The pod's state."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    index = labels.get(api_objects.LABEL_REPLICA_INDEX, "")
    training = container_status(pod, TRAINING_CONTAINER)
    state = _newest_state(training)
    ended = _newest_end(training)
    reason, message = _why(pod, training)
    return PodChanged(
        pod=metadata["name"],
        phase=_pod_phase(status.get("phase")),
        uid=metadata.get("uid", ""),
        replica_type=labels.get(api_objects.LABEL_REPLICA_TYPE, "worker").capitalize(),
        replica_index=int(index) if index.isdecimal() else 0,
        node=(pod.get("spec") or {}).get("nodeName") or "",
        ip=status.get("podIP") or "",
        host_ip=status.get("hostIP") or "",
        ready=any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ()),
        restarts=training.get("restartCount", 0),
        container_id=training.get("containerID") or state.get("containerID") or "",
        exit_code=ended.get("exitCode"),
        last_reason=ended.get("reason") or "",
        last_ended=parse_time(ended.get("finishedAt")),
        reason=reason,
        message=message,
        created=parse_time(metadata.get("creationTimestamp")),
        started=parse_time(state.get("startedAt")),
        time=now,
    )


def container_names(pod: Object) -> list[str]:
    """Every container that has a log."""
    spec = pod.get("spec") or {}
    return [one["name"] for one in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]]


def container_status(pod: Object, container: str) -> Object:
    """The status of one container, also of an init container; {} if there is none yet."""
    status = pod.get("status") or {}
    every = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return next((one for one in every if one.get("name") == container), {})


def _newest_state(container: Object) -> Object:
    """How the container runs, or how it ran last."""
    state, last = container.get("state") or {}, container.get("lastState") or {}
    return state.get("running") or state.get("terminated") or last.get("terminated") or {}


def _newest_end(container: Object) -> Object:
    return (container.get("state") or {}).get("terminated") or (container.get("lastState") or {}).get("terminated") or {}


def _pod_phase(phase: str | None) -> PodPhase:
    try:
        return PodPhase(phase or "Pending")
    except ValueError:
        return PodPhase.UNKNOWN


def _why(pod: Object, training: Object) -> tuple[str, str]:
    """Reason and message of why a pod waits or ended, from the closest who knows: container, init container, pod, scheduler."""
    status = pod.get("status") or {}
    if status.get("reason"):  # Evicted, NodeLost, Shutdown: the containers only show the consequence
        return status["reason"], status.get("message") or ""
    for container in (training, *(status.get("initContainerStatuses") or ())):
        if waits := (container.get("state") or {}).get("waiting"):
            if waits.get("reason") == "PodInitializing":  # the init container knows more
                continue
            return waits.get("reason") or "", _with_last_end(waits.get("message") or "", container)
    for container in (training, *(status.get("initContainerStatuses") or ())):
        ended = (container.get("state") or {}).get("terminated")
        if ended and (container is training or ended.get("exitCode")):
            return ended.get("reason") or "", ended.get("message") or ""
    if is_being_deleted(pod):
        return "Terminating", ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("reason") or "", condition.get("message") or ""
    return "", ""


def is_being_deleted(thing: Object) -> bool:
    """Whether its deletion has begun."""
    return bool(thing["metadata"].get("deletionTimestamp"))


def _with_last_end(message: str, container: Object) -> str:
    """`message`, and how the container ended before, which CrashLoopBackOff hides."""
    last = (container.get("lastState") or {}).get("terminated")
    if not last:
        return message
    end = f"ended before with {last.get('reason') or 'no reason'} (exit code {last.get('exitCode')})"
    return f"{message}; {end}" if message else end


def _image(job: Object) -> str:
    replicas = (job.get("spec") or {}).get("pytorchReplicaSpecs") or {}
    for kind in ("Worker", "Master"):
        pod_spec = ((replicas.get(kind) or {}).get("template") or {}).get("spec") or {}
        if container := api_objects.find_training_container(pod_spec):
            return str(container.get("image") or "")
    return ""
