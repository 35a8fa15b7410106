"""Checks for symptoms that no single line shows; each belongs to the rule with its name (`loss_constant`: `loss-constant`)."""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec.structs import replace

from kfjob.base.patterns import Pattern
from kfjob.base.units import SECOND
from kfjob.joblog.agents.program_lines import find_program_lines
from kfjob.joblog.diagnose.engine.history import JobEvidence, Occurrence, Occurrences
from kfjob.joblog.diagnose.rule import Subject
from kfjob.joblog.diagnose.rules import BY_ID, check_ids
from kfjob.joblog.events import JobPhase, ProcessState
from kfjob.joblog.lines.timestamps import Timestamp
from kfjob.joblog.progress.formats import KFJOB_TRAINER
from kfjob.joblog.view.job_view import format_pause
from kfjob.joblog.view.silence import describe_processes, find_halted

CONSTANT_READINGS = 20
"""Readings after which an unchanged loss counts as constant."""
OPERATOR_TIME = 30 * SECOND
"""Time within which a running operator writes a status and creates pods."""
JOIN_TIME = 120 * SECOND
"""Time within which an agent that reaches the store joins a round or prints an error."""

_EXIT_MESSAGE = Pattern(r"(?i)(?:fatal |usage )?error: *(?P<what>[^\n]{3,200})")
_STACK = "`py-spy dump --pid PID` shows the stack of a process"
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
    """All points of the loss curve are equal."""
    training = job.view.training
    losses = {point.loss for point in training.curve}
    if len(training.curve) >= CONSTANT_READINGS and len(losses) == 1 and training.loss in losses:
        yield job.occurrence("loss-constant", pod=training.pod, loss=training.loss, count=training.lines)


def exit_message(job: JobEvidence) -> Occurrences:
    """A program ended with exit code 1 after an error that it printed itself, and no other error explains the end."""
    for pod in job.history.pods.values():
        symptom = pod.symptoms.get(("worker-failed", ""))
        failure = symptom.occurrences[-1] if symptom and symptom.occurrences else None
        if (
            failure is None
            or failure.values.get("code") != "1"
            or any(item.rule.explains_end for item in pod.symptoms.occurrences())
        ):
            continue
        lines = find_program_lines(reversed(failure.context))
        if lines and (match := _EXIT_MESSAGE.match(lines[-1])):
            rule, values = BY_ID["exit-message"], {**failure.values, "what": match["what"]}
            yield replace(failure, rule=rule, values=values, evidence=(lines[-1],), context=(), line=None)


def stalled(job: JobEvidence) -> Occurrences:
    """The job runs without progress."""
    if job.view.stalled:
        processes = find_halted(job.view) or [process for pod in job.view.pods.values() for process in pod.processes]
        pause = format_pause(job.view.seconds_since_progress or 0)
        yield job.occurrence("stalled", pause=pause, processes=describe_processes(processes) or _STACK)


def process_stopped(job: JobEvidence) -> Occurrences:
    """A signal has stopped a process of a local job that runs."""
    if not job.view.running:
        return
    for name, pod in job.view.pods.items():
        for process in pod.processes:
            if process.state is ProcessState.STOPPED:
                yield job.occurrence("process-stopped", pod=name, process=process, pid=process.pid)


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


def rendezvous_silent(job: JobEvidence) -> Occurrences:
    """An agent has started, has not joined a round, and prints nothing."""
    for name, pod in job.history.pods.items():
        last, now = pod.recent.timestamp().resolve(job.view.reference_time), job.view.now
        live = job.view.running and name in job.view.pods and job.view.pods[name].live
        waits = pod.launch is not None and not pod.joined and not pod.symptoms
        if live and waits and last and now and now - last > JOIN_TIME:
            yield job.occurrence("rendezvous-silent", pod=name, evidence=pod.recent.last_text)


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
    """Fewer processes than expected have printed the import line."""
    for name, history in job.history.pods.items():
        symptom = history.symptoms.get(("shard-checkpoint-import", ""))
        if symptom is None:
            continue
        pod = job.view.pods.get(name)
        processes = job.view.config.processes_per_node or (len(pod.global_ranks) if pod else 0)
        if processes and symptom.count < processes and len(history.starts) <= 1:
            ranks = {occurrence.rank for occurrence in symptom.occurrences}
            absent = sorted(set(pod.global_ranks if pod else ()) - ranks) if None not in ranks and len(ranks) > 1 else []
            missing = f"rank {', '.join(map(str, absent))}" if absent else f"{processes - symptom.count} of them"
            yield job.occurrence("import-shortfall", pod=name, count=symptom.count, processes=processes, missing=missing)


JOB_CHECKS: tuple[Callable[[JobEvidence], Occurrences], ...] = (
    loss_not_finite, loss_constant, exit_message, stalled, process_stopped, operator_missing, no_pods, rendezvous_silent,
    stale_store, import_shortfall,
)  # fmt: skip
