"""Read jobs and pods from the API's raw JSON. Pure.

The kind of the job reads the job's state; pod states are the kubelet's (core/v1). A field that an older or newer server leaves
out counts as absent; it is never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kfjob.base.common_types import JsonObject
from kfjob.base.text import join_lines
from kfjob.joblog.events import NODE_NOT_READY, JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase
from kfjob.kinds.base import JobKind
from kfjob.objects import api_objects
from kfjob.objects.reading import find_owner_uid, get_launch, is_being_deleted, parse_time


def snapshot(
    kind: JobKind, job: JsonObject, pods: list[JsonObject] | None = None, *, store: Sequence[JsonObject] = (), now: int
) -> JobSnapshot:
    """Return the snapshot of a job, with those of `pods`, and the newest pod of its `store`, that belong to it."""
    metadata, launch = job["metadata"], get_launch(job)
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    job_id = kind.identify(name=metadata["name"], uid=metadata["uid"], launch=launch)
    own = own_pods(kind, pods or (), job_id, now=now)
    return JobSnapshot(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        job=use_running_pods(kind, kind.read_state(job, now=now), own),
        pods=own,
        store=_read_store(kind, store, metadata["uid"], now=now),
        uid=metadata["uid"],
        launch=launch,
        backend="kubernetes",
        job_kind=kind.name,
        image=_find_image(kind, job),
        spec=annotations.get(api_objects.ANNOTATION_SPEC),
        manifest=annotations.get(api_objects.ANNOTATION_MANIFEST),
        observe_config=annotations.get(api_objects.ANNOTATION_OBSERVE_CONFIG),
        submitted_by=annotations.get(api_objects.ANNOTATION_SUBMITTED_BY) or "",
        spec_file=annotations.get(api_objects.ANNOTATION_SPEC_FILE) or "",
        relaunches=annotations.get(api_objects.ANNOTATION_RELAUNCHES) or "",
        guard_decision=annotations.get(api_objects.ANNOTATION_DECISION) or "",
        labels=dict(labels),
    )


def _read_store(kind: JobKind, pods: Sequence[JsonObject], uid: str, *, now: int) -> PodChanged | None:
    """Return the state of the newest pod that no other job owns; a Deployment owns that of a template's etcd."""
    own = [pod for pod in pods if find_owner_uid(pod, kind.name) in ("", uid)]
    pod = max(own, key=lambda pod: (not is_being_deleted(pod), pod["metadata"].get("creationTimestamp") or ""), default=None)
    return pod_changed(kind, pod, container=next(iter(container_names(pod)), ""), now=now) if pod else None


def snapshot_of_pods(kind: JobKind, name: str, namespace: str, pods: list[JsonObject], *, now: int) -> JobSnapshot | None:
    """Return a job as its pods show it; None if no pod belongs to a job. Of two jobs of this name, it is the newer."""
    job_pods = [pod for pod in pods if kind.find_job_id(pod)]
    if not job_pods:
        return None
    newest = max(job_pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
    own = own_pods(kind, job_pods, kind.find_job_id(newest), now=now)
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
        uid=kind.find_job_id(newest),
        launch=get_launch(newest),
        backend="kubernetes",
        job_kind=kind.name,
    )


def use_running_pods(kind: JobKind, job: JobChanged, pods: Iterable[PodChanged]) -> JobChanged:
    """Return the state of a job that runs as soon as one of its pods does, whatever its controller waits for."""
    is_late = kind.runs_when_all_pods_do and job.phase is JobPhase.PENDING
    return replace(job, phase=JobPhase.RUNNING) if is_late and any(pod.phase is PodPhase.RUNNING for pod in pods) else job


def _phase_of_pods(phases: set[PodPhase]) -> JobPhase:
    """Return the most likely state of the job."""
    if phases & {PodPhase.RUNNING, PodPhase.UNKNOWN}:
        return JobPhase.RUNNING
    if PodPhase.PENDING in phases:
        return JobPhase.PENDING
    return JobPhase.FAILED if PodPhase.FAILED in phases else JobPhase.SUCCEEDED


def own_pods(kind: JobKind, pods: Iterable[JsonObject], job_id: str, *, now: int) -> tuple[PodChanged, ...]:
    """Return the pods that belong to the job with this id (`JobKind.identify`), in the order of their replicas."""
    own = [pod_changed(kind, pod, now=now) for pod in pods if kind.find_job_id(pod) == job_id]
    return tuple(sorted(own, key=lambda pod: (pod.replica_type, pod.replica_index, pod.pod)))


def pod_changed(kind: JobKind, pod: JsonObject, *, container: str = "", now: int) -> PodChanged:
    """Return the pod's state, with that of the container that trains or of another `container`."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    replica = kind.read_replica(pod)
    training = container_status(pod, container or kind.training_container)
    state = _newest_state(training)
    termination = _last_termination(training)
    reason, message, subject = _explain_state(pod, training)
    return PodChanged(
        pod=metadata["name"],
        phase=_pod_phase(status.get("phase")),
        uid=metadata.get("uid", ""),
        replica_type=replica.role,
        replica_index=replica.index,
        host=replica.host,
        node=(pod.get("spec") or {}).get("nodeName") or "",
        ip=status.get("podIP") or "",
        host_ip=status.get("hostIP") or "",
        ready=any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ()),
        restarts=training.get("restartCount", 0),
        container_id=training.get("containerID") or state.get("containerID") or "",
        exit_code=termination.get("exitCode"),
        last_reason=termination.get("reason") or "",
        last_ended=parse_time(termination.get("finishedAt")),
        reason=join_lines(reason),
        message=join_lines(message),
        container="" if subject == training.get("name") and not container else subject,
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


_STARTING = frozenset({"PodInitializing", "ContainerCreating"})
"""Reasons of containers that wait for another container, or for the pod's volumes and network."""


def _explain_state(pod: JsonObject, training: JsonObject) -> tuple[str, str, str]:
    """Return why a pod waits or ended, the reason in words, and the container that it is about; "" for the whole pod.

    The containers come first: the one that trains, init containers and sidecars. The scheduler's reason comes last.
    """
    status = pod.get("status") or {}
    if status.get("reason"):  # Evicted, NodeLost, Shutdown: the containers only show the consequence
        return status["reason"], status.get("message") or "", ""
    init = status.get("initContainerStatuses") or ()
    containers = (training, *init, *(one for one in status.get("containerStatuses") or () if one is not training))
    waits = [(waiting, one) for one in containers if (waiting := (one.get("state") or {}).get("waiting"))]
    for waiting, container in sorted(waits, key=lambda item: item[0].get("reason") in _STARTING):
        if waiting.get("reason") != "PodInitializing":  # an init container has the reason
            message = _add_last_termination(waiting.get("message") or "", container)
            return waiting.get("reason") or "", message, container.get("name") or ""
    for container in (training, *init):
        terminated = (container.get("state") or {}).get("terminated")
        if terminated and (container is training or terminated.get("exitCode")):
            return terminated.get("reason") or "", terminated.get("message") or "", container.get("name") or ""
    return ("Terminating", "", "") if is_being_deleted(pod) else (*_explain_conditions(pod), "")


def _explain_conditions(pod: JsonObject) -> tuple[str, str]:
    """Return why a pod is not scheduled, or that its node does not answer, and the reason in words.

    For such a node the control plane sets `Ready` to False and leaves the other conditions as the kubelet reported them (v1.34
    pkg/controller/util/node, `MarkPodsNotReady`). The kubelet itself does so only for a readiness gate.
    """
    spec = pod.get("spec") or {}
    conditions = {one.get("type"): one for one in (pod.get("status") or {}).get("conditions") or ()}
    states = {kind: condition.get("status") for kind, condition in conditions.items()}
    if states.get("PodScheduled") == "False":
        return conditions["PodScheduled"].get("reason") or "", conditions["PodScheduled"].get("message") or ""
    if states.get("Ready") == "False" and states.get("ContainersReady") == "True" and not spec.get("readinessGates"):
        return NODE_NOT_READY, f"node `{spec.get('nodeName')}` does not answer"
    return "", ""


def _add_last_termination(message: str, container: JsonObject) -> str:
    """Add to `message` how the container ended last, which CrashLoopBackOff hides."""
    last = (container.get("lastState") or {}).get("terminated")
    if not last:
        return message
    end = f"ended before with {last.get('reason') or 'no reason'} (exit code {last.get('exitCode')})"
    return f"{message}; {end}" if message else end


def _find_image(kind: JobKind, job: JsonObject) -> str:
    """Return the image of the Workers' training container, or else of the Master's; "" without one."""
    for template in reversed(kind.read_pod_templates(job)):
        for container in template.spec.get("containers") or ():
            if container.get("name") == kind.training_container:
                return str(container.get("image") or "")
    return ""
