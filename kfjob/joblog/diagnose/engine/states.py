"""Symptoms that no log line shows: states of pods and of the job, Kubernetes events, and the job's queue."""

from __future__ import annotations

from kfjob.joblog.diagnose.engine.history import JobHistory, Occurrence, PodHistory
from kfjob.joblog.diagnose.engine.matching import MAX_QUOTE, match_rules
from kfjob.joblog.diagnose.rule import UNKNOWN_VALUE, Rule, Subject
from kfjob.joblog.diagnose.rules import check_ids
from kfjob.joblog.events import (
    ETCD_CONTAINER,
    ETCD_WAIT,
    NODE_NOT_READY,
    JobChanged,
    KubernetesEvent,
    PodChanged,
    PodPhase,
    StateEvent,
    StoreChanged,
    WorkloadStatus,
)
from kfjob.joblog.lines.timestamps import Timestamp
from kfjob.joblog.pods.pod_problems import find_stage, is_over
from kfjob.redaction import cut_text

POD_ENDS = frozenset(
    check_ids("pod-preempted", "pod-evicted-by-taint", "node-not-ready", "evicted", "ephemeral-storage-full", "node-lost")
)
"""Rules about pods that had run, and that something in the cluster ended. The start of another pod does not resolve them."""

NODE_SILENCE = frozenset(check_ids("node-not-ready", "node-lost"))
"""Rules about a node that does not answer; its pod may go on, and shows it when the node answers again."""

[_NOT_EXECUTABLE] = check_ids("pod-not-executable")
"""The rule about a command that does not start: a program that has printed steps ended with the same code by itself."""
[_FAILED] = check_ids("pod-failed")

_REPETITIONS = frozenset({"Error: ErrImagePull", "Error: ImagePullBackOff"})
"""Messages of events that follow another event with the reason."""


class StateReader:
    """Adds the symptoms in states and events to a job's history."""

    def __init__(self, history: JobHistory) -> None:
        self._history = history

    def feed(self, event: StateEvent | KubernetesEvent | WorkloadStatus, order: int, *, line: int | None = None) -> None:
        """Read an event; `order` is its position among all events of the job, `line` that in the log which quotes it."""
        if isinstance(event, PodChanged):
            self._change_pod(event, order)
        elif isinstance(event, StoreChanged):
            self._change_pod(event.state, order)
        elif isinstance(event, JobChanged):
            self._change_job(event, order)
        elif isinstance(event, KubernetesEvent):
            self._add_cluster_event(event, order, line)
        else:
            self._change_workload(event, order)

    def _change_job(self, event: JobChanged, order: int) -> None:
        text = f"{event.phase} {event.reason}: {event.message}"
        for match in match_rules(Subject.JOB, text):
            timestamp = Timestamp(time=event.ended or event.time)
            occurrence = Occurrence(rule=match.rule, values=match.values, order=order, timestamp=timestamp, evidence=(text,))
            self._history.job.add(occurrence, occasion=(0, 0))

    def _change_pod(self, event: PodChanged, order: int) -> None:
        """Add the symptom that a state shows, and resolve earlier ones that it ends."""
        pod = self._history.pod(event.pod)
        before, pod.state = pod.state, event
        _resolve_overcome(pod)
        for occurrence in self._history.job.occurrences():
            latest = occurrence.latest.time if occurrence.latest else None
            if occurrence.pod_waits and _is_resolved_by(event, occurrence.values["kind"], latest or 0):
                occurrence.resolved = True
        text = format_pod(event)
        if before and format_pod(before) == text:
            return
        match = next(match_rules(Subject.POD, text), None)
        if match and match.rule.id == _NOT_EXECUTABLE and pod.readings:
            match = next((other for other in match_rules(Subject.POD, text) if other.rule.id == _FAILED), match)
        rule = match.rule if match else None
        if event.phase in {PodPhase.RUNNING, PodPhase.SUCCEEDED}:
            for occurrence in pod.symptoms.occurrences():
                can_end = occurrence.pod_waits or occurrence.rule.id in NODE_SILENCE
                occurrence.resolved = occurrence.resolved or (can_end and rule is not occurrence.rule)
        if match and event.phase is not PodPhase.SUCCEEDED:
            pod.symptoms.add(_to_occurrence(event, match.rule, match.values, order), occasion=(order, 0))

    def _add_cluster_event(self, event: KubernetesEvent, order: int, line: int | None) -> None:
        """Add the symptom that a Kubernetes event shows, to its pod or to the job."""
        is_pod = event.kind == "Pod"
        if is_pod and (stage := find_stage(event.reason)):
            pod = self._history.pod(event.name)
            pod.stages[stage] = max(event.time or 0, pod.stages.get(stage, 0))
            _resolve_overcome(pod)
        match = next(match_rules(Subject.EVENT, f"{event.kind} {event.reason}: {event.message}"), None)
        if match is None and is_pod and event.warning and event.message not in _REPETITIONS:
            match = next(match_rules(Subject.POD, _format_as_state(event)), None)
        if match is None or self._is_outdated(event):
            return
        occurrence = Occurrence(
            rule=match.rule,
            pod=event.name if is_pod else "",
            values={"pod": event.name, "kind": event.kind, **_describe_container(event.container), **match.values},
            order=order,
            timestamp=Timestamp(time=event.first or event.time),
            latest=Timestamp(time=event.time),
            line=line,
            evidence=(cut_text(f"{event.reason}: {event.message}", MAX_QUOTE),),
            pod_waits=match.rule.id not in POD_ENDS,
            stage=find_stage(event.reason) if is_pod else None,
        )
        table = self._history.pod(event.name).symptoms if is_pod else self._history.job
        table.add(occurrence, occasion=(order, 0))

    def _is_outdated(self, event: KubernetesEvent) -> bool:
        """Return whether its problem has ended: the pod has come further since, or a pod was created since."""
        time = event.time or 0
        pods = self._history.pods
        if event.kind != "Pod":
            return any(_is_resolved_by(pod.state, event.kind, time) for pod in pods.values() if pod.state)
        pod = pods.get(event.name)
        if pod is None:
            return False
        if event.reason == NODE_NOT_READY and pod.state and pod.state.phase is PodPhase.RUNNING:
            return pod.state.reason != NODE_NOT_READY  # the node answers again, or the state will come
        stage = find_stage(event.reason)
        is_overcome = stage is not None and is_over(stage, event.first or time, events=pod.stages, state=pod.state)
        return is_overcome or (pod.state is not None and (pod.state.started or 0) > time)

    def _change_workload(self, event: WorkloadStatus, order: int) -> None:
        """Add the reason why the job waits in its queue, and resolve the earlier ones."""
        text = f"{event.reason}: {event.message}"
        match = None if event.admitted else next(match_rules(Subject.QUEUE, text), None)
        for occurrence in self._history.job.occurrences():
            if occurrence.rule.subject is Subject.QUEUE and (match is None or occurrence.rule is not match.rule):
                occurrence.resolved = True
        if match:
            values = {"name": event.queue} | {name: value for name, value in match.values.items() if value != UNKNOWN_VALUE}
            timestamp = Timestamp(time=event.time)
            occurrence = Occurrence(rule=match.rule, values=values, order=order, timestamp=timestamp, evidence=(text,))
            self._history.job.add(occurrence, occasion=(order, 0))


def format_pod(state: PodChanged) -> str:
    """Return a pod's state as the text that rules are matched against."""
    code = "" if state.exit_code is None else f" exit={state.exit_code}"
    message = state.message
    if state.last_reason and state.last_reason not in f"{state.reason} {message}":
        end = f"ended before with {state.last_reason} (exit code {state.exit_code})"  # the running state does not show it
        message = f"{message}; {end}" if message else end
    return f"{state.phase} {state.reason}{code} restarts={state.restarts}: {message}"


def _to_occurrence(event: PodChanged, rule: Rule, values: dict[str, str], order: int) -> Occurrence:
    pod_waits = event.phase is PodPhase.PENDING
    return Occurrence(
        rule=rule,
        pod=event.pod,
        values={**_describe_container(event.container), **values},
        order=order,
        timestamp=Timestamp(time=event.last_ended if event.last_ended and not pod_waits else event.time),
        evidence=(" ".join(part for part in (event.reason, event.message) if part) or format_pod(event),),
        pod_waits=pod_waits,
        stage=find_stage(event.reason) if pod_waits else None,
    )


def _describe_container(container: str) -> dict[str, str]:
    """Return the container and the setting that chose its image; "" stands for the one that trains, or the pod."""
    image = "`image`" if container in {"", ETCD_WAIT} else f"the `image` of container `{container}`"
    if container == ETCD_CONTAINER:
        image = "`etcd_image` of the settings (kfjob.toml, `KFJOB_ETCD_IMAGE`)"
    return {"container": container, "image": image}


def _resolve_overcome(pod: PodHistory) -> None:
    """Resolve the symptoms of a pod's start that it has overcome."""
    for occurrence in pod.symptoms.occurrences():
        if occurrence.pod_waits and occurrence.stage:
            since = occurrence.timestamp.time or 0
            occurrence.resolved |= is_over(occurrence.stage, since, events=pod.stages, state=pod.state)


def _format_as_state(event: KubernetesEvent) -> str:
    """Return a warning about a pod as the state that the kubelet gives the pod for it."""
    reason = "ErrImagePull" if event.message.startswith("Failed to pull image") else event.reason
    return f"Pending {reason} restarts=0: {event.message}"


def _is_resolved_by(pod: PodChanged, kind: str, time: int) -> bool:
    """Return whether this pod shows that a problem at that time has ended: pods can be created, or a claim is bound."""
    since = pod.started if kind == "PersistentVolumeClaim" else pod.created
    return (since or 0) > time
