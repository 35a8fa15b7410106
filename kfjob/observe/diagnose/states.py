"""What states tell, and what the cluster's controllers wrote down: symptoms that no log line shows."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.events import JobChanged, KubernetesEvent, PodChanged, PodPhase, WorkloadStatus
from kfjob.observe.diagnose.occurrences import QUOTED, Occurrence, PodHistory, Symptom, match_rules, record_occurrence
from kfjob.observe.diagnose.rule import UNKNOWN_VALUE, Subject
from kfjob.observe.timestamps import Timestamp

_LASTING = frozenset({"pod-preempted", "pod-driven-out", "node-not-ready", "evicted", "ephemeral-storage-full", "node-lost"})
"""What is written down of pods that had run: that another one starts does not undo it."""

_NOTHING_NEW = frozenset({"Error: ErrImagePull", "Error: ImagePullBackOff"})
"""Events that come after one that says why."""


class StateSymptoms:
    """Adds to the symptoms of the pods and to those of the job as a whole."""

    def __init__(self, pods: dict[str, PodHistory], job: dict[tuple[str, str], Symptom]) -> None:
        """Both are shared with whoever reads the logs."""
        self._pods = pods
        self._job = job

    def feed(self, event: PodChanged | JobChanged | KubernetesEvent | WorkloadStatus, order: int) -> None:
        """One more event, the `order`-th of all."""
        if isinstance(event, PodChanged):
            self._pod_changed(event, order)
        elif isinstance(event, JobChanged):
            self._job_changed(event, order)
        elif isinstance(event, KubernetesEvent):
            self._recorded(event, order)
        else:
            self._queued(event, order)

    def _job_changed(self, event: JobChanged, order: int) -> None:
        text = f"{event.phase} {event.reason}: {event.message}"
        for rule, values in match_rules(Subject.JOB, text):
            moment = Timestamp(time=event.ended or event.time)
            record_occurrence(
                self._job, Occurrence(rule=rule, values=values, order=order, moment=moment, evidence=(text,)), episode=0
            )

    def _pod_changed(self, event: PodChanged, order: int) -> None:
        """A state may be a symptom, or show that an earlier one is over."""
        pod = self._pods.setdefault(event.pod, PodHistory())
        before, pod.state = pod.state, event
        for occurrence in _sightings(self._job):
            last = occurrence.until.time if occurrence.until else None
            occurrence.over = occurrence.over or (
                occurrence.waiting and _overcomes(event, occurrence.values["kind"], last or 0)
            )
        text = pod_text(event)
        if before and pod_text(before) == text:
            return
        found = next(match_rules(Subject.POD, text), None)
        if event.phase in {PodPhase.RUNNING, PodPhase.SUCCEEDED}:
            for occurrence in _sightings(pod.symptoms):
                occurrence.over = occurrence.over or (occurrence.waiting and (found is None or found[0] is not occurrence.rule))
        if found and event.phase is not PodPhase.SUCCEEDED:
            waiting = event.phase is PodPhase.PENDING
            occurrence = Occurrence(
                rule=found[0],
                pod=event.pod,
                values=found[1],
                order=order,
                moment=Timestamp(time=event.last_ended if event.last_ended and not waiting else event.time),
                evidence=(" ".join(part for part in (event.reason, event.message) if part) or text,),
                waiting=waiting,
            )
            record_occurrence(pod.symptoms, occurrence, episode=order)

    def _recorded(self, event: KubernetesEvent, order: int) -> None:
        """What a controller wrote down: of one pod, or of the job as a whole."""
        of_pod = event.kind == "Pod"
        found = next(match_rules(Subject.EVENT, f"{event.kind} {event.reason}: {event.message}"), None)
        if found is None and of_pod and event.warning and event.message not in _NOTHING_NEW:
            found = next(match_rules(Subject.POD, _as_state(event)), None)
        if found is None or self._has_passed(event):
            return
        occurrence = Occurrence(
            rule=found[0],
            pod=event.name if of_pod else "",
            values={"pod": event.name, "kind": event.kind, **found[1]},
            order=order,
            moment=Timestamp(time=event.first or event.time),
            until=Timestamp(time=event.time),
            evidence=(f"{event.reason}: {event.message}"[:QUOTED],),
            waiting=found[0].id not in _LASTING,
        )
        record_occurrence(
            self._pods.setdefault(event.name, PodHistory()).symptoms if of_pod else self._job, occurrence, episode=order
        )

    def _has_passed(self, event: KubernetesEvent) -> bool:
        """Whether what it speaks of had an end: the pod has started since, or a pod was made since."""
        at = event.time or 0
        if event.kind != "Pod":
            return any(_overcomes(pod.state, event.kind, at) for pod in self._pods.values() if pod.state)
        state = self._pods[event.name].state if event.name in self._pods else None
        return state is not None and (state.started or 0) > at

    def _queued(self, event: WorkloadStatus, order: int) -> None:
        """Where the job stands in its queue; what it waited for before is over."""
        text = f"{event.reason}: {event.message}"
        rule, values = (None, {}) if event.admitted else next(match_rules(Subject.QUEUE, text), (None, {}))
        for symptom in self._job.values():
            if symptom.rule.subject is Subject.QUEUE and symptom.rule is not rule:
                for occurrence in symptom.occurrences:
                    occurrence.over = True
        if rule:
            named = {"name": event.queue} | {name: value for name, value in values.items() if value != UNKNOWN_VALUE}
            moment = Timestamp(time=event.time)
            record_occurrence(
                self._job, Occurrence(rule=rule, values=named, order=order, moment=moment, evidence=(text,)), episode=order
            )


def pod_text(state: PodChanged) -> str:
    """A pod's state as the text that rules are matched against."""
    code = "" if state.exit_code is None else f" exit={state.exit_code}"
    message = state.message
    if state.last_reason and state.last_reason not in f"{state.reason} {message}":
        end = f"ended before with {state.last_reason} (exit code {state.exit_code})"  # it runs again, and would show nothing
        message = f"{message}; {end}" if message else end
    return f"{state.phase} {state.reason}{code} restarts={state.restarts}: {message}"


def _as_state(event: KubernetesEvent) -> str:
    """A warning about a pod as the text of the state that the kubelet gives the pod for it."""
    reason = "ErrImagePull" if event.message.startswith("Failed to pull image") else event.reason
    return f"Pending {reason} restarts=0: {event.message}"


def _overcomes(pod: PodChanged, kind: str, at: int) -> bool:
    """Whether this pod shows that what kept the job from having pods, or a claim from being bound, at that time is no more."""
    since = pod.started if kind == "PersistentVolumeClaim" else pod.created
    return (since or 0) > at


def _sightings(symptoms: dict[tuple[str, str], Symptom]) -> Iterator[Occurrence]:
    return (occurrence for symptom in symptoms.values() for occurrence in symptom.occurrences)
