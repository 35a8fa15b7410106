"""Checks for symptoms that no single line shows; each belongs to the rule with its name (`loss_constant`: `loss-constant`)."""

from __future__ import annotations

import math
from collections.abc import Callable

from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.engine.history import JobEvidence, Occurrence, Occurrences
from kfjob.joblog.diagnose.engine.states import POD_ENDS
from kfjob.joblog.diagnose.rule import Subject
from kfjob.joblog.diagnose.rules import BY_ID, check_ids
from kfjob.joblog.events import TERMINATING, JobPhase, PodPhase
from kfjob.joblog.lines.timestamps import Timestamp
from kfjob.joblog.master.evidence import describe_ranks
from kfjob.joblog.progress.exact_formats import KFJOB_TRAINER
from kfjob.joblog.view.job_view import format_pause
from kfjob.joblog.view.silence import PY_SPY

OPERATOR_TIME = 30 * SECOND
"""Time within which a running operator writes a status and creates pods."""
IMPORT_TIME = 60 * SECOND
"""Time within which the processes of a pod import the same module."""
_KILLING, _RESTARTED = "Killing", "will be restarted"
"""Reason of the kubelet's event about a pod that ends, and the end of its message about a container that starts again."""
(_IMPORT,) = check_ids("shard-checkpoint-import")
_UNREACHABLE_STORE = check_ids("rendezvous-refused", "rendezvous-unresolvable", "rendezvous-no-route", "store-wait-timeout")


def loss_not_finite(job: JobEvidence) -> Occurrences:
    """The newest loss is not a finite number."""
    training = job.view.training
    if training.loss is not None and not math.isfinite(training.loss):
        line, since = training.not_finite_line, training.not_finite_since
        timestamp = Timestamp(time=line.time if line else training.last_time)
        is_own = job.view.config.trainer == KFJOB_TRAINER or job.view.start is not None
        occurrence = job.occurrence(
            "loss-not-finite",
            pod=training.pod,
            timestamp=timestamp,
            loss=training.loss,
            since="" if since is None else f" since step {since}",
            change="a lower `lr`, `grad_clip: 1.0` or bf16" if is_own else "a lower learning rate, gradient clipping or bf16",
        )
        if line is not None:
            occurrence.line, occurrence.evidence = line.number + 1, (line.text,)
        yield occurrence


def loss_constant(job: JobEvidence) -> Occurrences:
    """The loss never changes."""
    training = job.view.training
    if training.has_constant_loss:
        yield job.occurrence("loss-constant", pod=training.pod, loss=training.loss, count=training.lines)


def stalled(job: JobEvidence) -> Occurrences:
    """The pods of the job run without progress."""
    if job.view.stalled and job.view.pods:
        pause = format_pause(job.view.seconds_since_progress or 0)
        yield job.occurrence("stalled", pause=pause, py_spy=PY_SPY)


def operator_missing(job: JobEvidence) -> Occurrences:
    """The job has no status."""
    status = job.view.job
    untouched = status and status.phase is JobPhase.PENDING and not status.reason and not job.view.pods
    if untouched and job.age > OPERATOR_TIME and not any(event.about_job for event in job.view.cluster_events):
        yield job.occurrence("operator-missing", seconds=job.age // SECOND)


def no_pods(job: JobEvidence) -> Occurrences:
    """The job has a status but no pods, and no event gives a reason."""
    status = job.view.job
    has_reason = any(symptom.rule.subject is Subject.EVENT for symptom in job.history.job.values())
    waits = status and status.phase is JobPhase.PENDING and status.reason and not job.view.pods
    if waits and not has_reason and job.age > OPERATOR_TIME:
        yield job.occurrence("no-pods", seconds=job.age // SECOND)


def stale_store(job: JobEvidence) -> Occurrences:
    """A pod got the same store address in all its rounds, and could not reach it."""
    for name, pod in job.history.pods.items():
        results = [member.result for item in job.view.rounds for member in item.members if member.pod == name]
        addresses = {(result.master_addr, str(result.master_port)) for result in results}
        failures = [
            occurrence
            for rule in _UNREACHABLE_STORE
            for occurrence in pod.symptoms.occurrences()
            if occurrence.rule.id == rule
            and occurrence.after_join
            and (occurrence.values.get("host"), occurrence.values.get("port")) in addresses
        ]
        if len(results) > 1 and len(addresses) == 1 and failures:
            first = failures[0]
            yield Occurrence(
                rule=BY_ID["stale-store"],
                pod=name,
                values={"pod": name},
                order=first.order,
                timestamp=first.timestamp,
                line=first.line,
                rank=first.rank,
                evidence=first.evidence,
                after_join=True,
            )


def import_shortfall(job: JobEvidence) -> Occurrences:
    """Some ranks of a pod did not print the line that each process prints when it starts."""
    now = job.view.now if job.view.phase and not job.view.phase.ended else None
    for name, pod in job.history.pods.items():
        symptom = pod.symptoms.get((_IMPORT, ""))
        missing = set(pod.ranks) - symptom.ranks if symptom else set()
        if not symptom or not missing or not symptom.ranks:
            continue
        newest = symptom.occurrences[-1]
        time = newest.timestamp.resolve(job.view.reference_time)
        if now is None or (time is not None and now - time > IMPORT_TIME):
            ranks = describe_ranks(missing).removeprefix("global ")
            yield job.occurrence("import-shortfall", pod=name, timestamp=newest.timestamp, missing=ranks)


def pods_deleted(job: JobEvidence) -> Occurrences:
    """Some pods were deleted before a container of another pod ended, and no event says why."""
    pods = {name: pod.state for name, pod in job.view.pods.items() if pod.state}
    gone = (state for state in pods.values() if state.phase is PodPhase.DELETED or state.reason == TERMINATING)
    deletions, texts = {state.pod: state.time for state in gone}, {}
    for event in reversed(job.view.cluster_events):
        if event.kind == "Pod" and event.reason == _KILLING and not event.message.endswith(_RESTARTED):
            deletions[event.name], texts[event.name] = event.time, f"{event.reason}: {event.message}"
    if job.view.job and job.view.job.ended:  # later, kfjob or the operator deletes the pods that still run
        end = max(job.view.job.ended, min(filter(None, deletions.values()), default=0))
        deletions = {name: time for name, time in deletions.items() if time is None or time <= end}
    if not (job.view.phase is JobPhase.FAILED or job.disconnects) or deletions.keys() >= pods.keys():
        return
    for name, time in deletions.items():
        history, state = job.history.pods.get(name), pods.get(name)
        is_explained = history and any(symptom.rule.id in POD_ENDS for symptom in history.symptoms.occurrences())
        ends = [other.last_ended for other in pods.values() if other.pod != name and other.phase is PodPhase.FAILED]
        if time is None or is_explained or (state and state.ended_by_kfjob) or any(end and end <= time for end in ends):
            continue
        occurrence = job.occurrence("pod-deleted", pod=name, timestamp=Timestamp(time=time))
        occurrence.evidence = (texts[name],) if name in texts else ()
        yield occurrence


JOB_CHECKS: tuple[Callable[[JobEvidence], Occurrences], ...] = (
    loss_not_finite, loss_constant, stalled, operator_missing, no_pods, stale_store, import_shortfall, pods_deleted,
)  # fmt: skip
