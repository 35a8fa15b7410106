"""Read jobs and pods from the API's raw JSON. Pure.

Job states are the operator's conditions (v1.9.3, pkg/util/status.go), pod states are the kubelet's (core/v1). A field that an
older or newer server leaves out counts as absent; it is never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from kfjob.base.common_types import JsonObject
from kfjob.base.units import SECOND
from kfjob.cluster.errors import Malformed
from kfjob.joblog.events import TRAINING_CONTAINER, JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase
from kfjob.objects import api_objects, names

_INDEX = re.compile(r"[0-9]{1,6}")
_PHASES = {
    "Created": JobPhase.PENDING,
    "Running": JobPhase.RUNNING,
    "Restarting": JobPhase.RESTARTING,
    "Suspended": JobPhase.SUSPENDED,
    "Succeeded": JobPhase.SUCCEEDED,
    "Failed": JobPhase.FAILED,
}


def parse_time(text: str | None) -> int | None:
    """Return a time of the API (in seconds or microseconds) as nanoseconds since the epoch.

    Raises:
        Malformed: the text is not a time.
    """
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        return int(time.timestamp()) * SECOND + time.microsecond * 1000
    except (ValueError, OverflowError) as err:
        raise Malformed("the API server sent a time that kfjob cannot read", cause=f"it is `{text[:100]}`") from err


def launch_of(item: JsonObject) -> str:
    """Return the launch id of a job or of an object that belongs to it; "" if kfjob did not submit the job."""
    return (item["metadata"].get("labels") or {}).get(api_objects.LABEL_LAUNCH) or ""


def submitter_of(job: JsonObject) -> str:
    """Return who submitted the launch, as kfjob recorded it; "" without a record."""
    return (job["metadata"].get("annotations") or {}).get(api_objects.ANNOTATION_SUBMITTED_BY) or ""


def spec_file_of(job: JsonObject) -> str:
    """Return the digest and the path of the file of the submitted spec; "" without a record."""
    return (job["metadata"].get("annotations") or {}).get(api_objects.ANNOTATION_SPEC_FILE) or ""


def snapshot(job: JsonObject, pods: list[JsonObject] | None = None, *, now: int) -> JobSnapshot:
    """Return the snapshot of a job, with those of `pods` that it owns."""
    metadata = job["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return JobSnapshot(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        job=job_changed(job, now=now),
        pods=own_pods(pods or (), metadata["uid"], now=now),
        uid=metadata["uid"],
        launch=launch_of(job),
        backend="kubernetes",
        image=_image(job),
        spec=annotations.get(api_objects.ANNOTATION_SPEC),
        manifest=annotations.get(api_objects.ANNOTATION_MANIFEST),
        observe_config=annotations.get(api_objects.ANNOTATION_OBSERVE_CONFIG),
        submitted_by=submitter_of(job),
        spec_file=spec_file_of(job),
        labels=dict(labels),
    )


def snapshot_of_pods(name: str, namespace: str, pods: list[JsonObject], *, now: int) -> JobSnapshot | None:
    """Return a job as its pods show it; None if no PyTorchJob owns a pod. Of two jobs of this name, it is the newer."""
    job_pods = [pod for pod in pods if owner_uid(pod)]
    if not job_pods:
        return None
    newest = max(job_pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
    own = own_pods(job_pods, owner_uid(newest), now=now)
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
        uid=owner_uid(newest),
        launch=launch_of(newest),
        backend="kubernetes",
    )


def _phase_of_pods(phases: set[PodPhase]) -> JobPhase:
    """Return the most likely state of the job."""
    if phases & {PodPhase.RUNNING, PodPhase.UNKNOWN}:
        return JobPhase.RUNNING
    if PodPhase.PENDING in phases:
        return JobPhase.PENDING
    return JobPhase.FAILED if PodPhase.FAILED in phases else JobPhase.SUCCEEDED


def own_pods(pods: Iterable[JsonObject], uid: str, *, now: int) -> tuple[PodChanged, ...]:
    """Return the pods that the job with this uid owns, in the order of their replicas."""
    own = [pod_changed(pod, now=now) for pod in pods if owner_uid(pod) == uid]
    return tuple(sorted(own, key=lambda pod: (pod.replica_type, pod.replica_index, pod.pod)))


def job_changed(job: JsonObject, *, now: int) -> JobChanged:
    """Return the job's state, as its controller reports it."""
    status = job.get("status") or {}
    condition = newest_condition(status.get("conditions") or [])
    phase = _PHASES[condition["type"]] if condition else JobPhase.PENDING
    ended = parse_time(status.get("completionTime"))
    if phase.ended and ended is None and condition:  # the operator sets the completion time of successful jobs only
        ended = parse_time(condition.get("lastTransitionTime"))
    return JobChanged(
        phase=phase,
        reason=(condition.get("reason") if condition else "") or "",
        message=(condition.get("message") if condition else "") or "",
        created=parse_time(job["metadata"].get("creationTimestamp")),
        started=parse_time(status.get("startTime")),
        ended=ended if phase.ended else None,
        time=now,
    )


def newest_condition(conditions: list[JsonObject]) -> JsonObject | None:
    """Return the condition that describes the job's state: a final one, else the newest that is true.

    The operator appends a condition, and removes the one that contradicts it first. So the order of the list decides between
    conditions of the same second.
    """
    true = [one for one in conditions if one.get("status") == "True" and one.get("type") in _PHASES]
    for one in reversed(true):
        if _PHASES[one["type"]].ended:
            return one
    return max(enumerate(true), key=lambda pair: (pair[1].get("lastTransitionTime") or "", pair[0]), default=(0, None))[1]


def owner_uid(item: JsonObject) -> str:
    """Return the uid of the PyTorchJob that owns the object; "" for none."""
    references = item["metadata"].get("ownerReferences") or []
    return next((one.get("uid") or "" for one in references if one.get("kind") == api_objects.PYTORCHJOB), "")


def with_owner(item: JsonObject, job: str, uid: str) -> JsonObject:
    """Return the object with the PyTorchJob as its owner, so that it is deleted with the job."""
    kind = {"apiVersion": api_objects.PYTORCHJOB_API_VERSION, "kind": api_objects.PYTORCHJOB}
    reference = {**kind, "name": job, "uid": uid, "controller": False, "blockOwnerDeletion": True}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [reference]}}


def will_have_pod(job: JsonObject, pod: str) -> bool:
    """Return whether the operator has created or will create a pod of this name for the job."""
    replicas = (job.get("spec") or {}).get("pytorchReplicaSpecs") or {}
    counts = ((kind, api_objects.count_replicas(spec)) for kind, spec in replicas.items())
    pods = (names.pod_name(job["metadata"]["name"], kind, index) for kind, count in counts for index in range(count))
    return not job_changed(job, now=0).phase.ended and pod in pods


def pod_changed(pod: JsonObject, *, now: int) -> PodChanged:
    """Return the pod's state."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    index = labels.get(api_objects.LABEL_REPLICA_INDEX, "")
    training = container_status(pod, TRAINING_CONTAINER)
    state = _newest_state(training)
    termination = _last_termination(training)
    reason, message = _explain_state(pod, training)
    return PodChanged(
        pod=metadata["name"],
        phase=_pod_phase(status.get("phase")),
        uid=metadata.get("uid", ""),
        replica_type=labels.get(api_objects.LABEL_REPLICA_TYPE, "worker").capitalize(),
        replica_index=int(index) if _INDEX.fullmatch(index) else 0,
        node=(pod.get("spec") or {}).get("nodeName") or "",
        ip=status.get("podIP") or "",
        host_ip=status.get("hostIP") or "",
        ready=any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ()),
        restarts=training.get("restartCount", 0),
        container_id=training.get("containerID") or state.get("containerID") or "",
        exit_code=termination.get("exitCode"),
        last_reason=termination.get("reason") or "",
        last_ended=parse_time(termination.get("finishedAt")),
        reason=reason,
        message=message,
        created=parse_time(metadata.get("creationTimestamp")),
        started=parse_time(state.get("startedAt")),
        time=now,
    )


def architecture_of(node: JsonObject) -> str:
    """Return the architecture of a node's processor; "" if the node does not report one."""
    return ((node.get("status") or {}).get("nodeInfo") or {}).get("architecture") or ""


def container_names(pod: JsonObject) -> list[str]:
    """Return the names of all containers that have a log."""
    spec = pod.get("spec") or {}
    return [one["name"] for one in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]]


def container_status(pod: JsonObject, container: str) -> JsonObject:
    """Return the status of one container, also of an init container; {} if it has none yet."""
    status = pod.get("status") or {}
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return next((one for one in statuses if one.get("name") == container), {})


def _newest_state(container: JsonObject) -> JsonObject:
    """Return the state of the container's present run, or of its last."""
    state, last = container.get("state") or {}, container.get("lastState") or {}
    return state.get("running") or state.get("terminated") or last.get("terminated") or {}


def _last_termination(container: JsonObject) -> JsonObject:
    return (container.get("state") or {}).get("terminated") or (container.get("lastState") or {}).get("terminated") or {}


def _pod_phase(phase: str | None) -> PodPhase:
    try:
        return PodPhase(phase or "Pending")
    except ValueError:
        return PodPhase.UNKNOWN


def _explain_state(pod: JsonObject, training: JsonObject) -> tuple[str, str]:
    """Return reason and message of why a pod waits or ended: of the container, an init container, the pod or the scheduler."""
    status = pod.get("status") or {}
    if status.get("reason"):  # Evicted, NodeLost, Shutdown: the containers only show the consequence
        return status["reason"], status.get("message") or ""
    for container in (training, *(status.get("initContainerStatuses") or ())):
        if waiting := (container.get("state") or {}).get("waiting"):
            if waiting.get("reason") == "PodInitializing":  # the init container has the reason
                continue
            return waiting.get("reason") or "", _add_last_termination(waiting.get("message") or "", container)
    for container in (training, *(status.get("initContainerStatuses") or ())):
        terminated = (container.get("state") or {}).get("terminated")
        if terminated and (container is training or terminated.get("exitCode")):
            return terminated.get("reason") or "", terminated.get("message") or ""
    if is_being_deleted(pod):
        return "Terminating", ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("reason") or "", condition.get("message") or ""
    return "", ""


def is_being_deleted(item: JsonObject) -> bool:
    """Return whether the deletion of an object has begun."""
    return bool(item["metadata"].get("deletionTimestamp"))


def _add_last_termination(message: str, container: JsonObject) -> str:
    """Add to `message` how the container ended last, which CrashLoopBackOff hides."""
    last = (container.get("lastState") or {}).get("terminated")
    if not last:
        return message
    end = f"ended before with {last.get('reason') or 'no reason'} (exit code {last.get('exitCode')})"
    return f"{message}; {end}" if message else end


def _image(job: JsonObject) -> str:
    replicas = (job.get("spec") or {}).get("pytorchReplicaSpecs") or {}
    for kind in ("Worker", "Master"):
        pod_spec = ((replicas.get(kind) or {}).get("template") or {}).get("spec") or {}
        if container := api_objects.find_training_container(pod_spec):
            return str(container.get("image") or "")
    return ""
