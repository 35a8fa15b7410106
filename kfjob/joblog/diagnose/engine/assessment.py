"""What an occurrence of a symptom means in its job: how severe it is, and how well it explains the failure.

An error that the program survived is a suspect if nothing else explains that the job failed after all.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from kfjob.joblog.diagnose.engine.aftermath import has_recovered, repeats_failure
from kfjob.joblog.diagnose.engine.history import JobEvidence, Occurrence, Symptom
from kfjob.joblog.diagnose.rule import Role, Severity, Subject
from kfjob.joblog.diagnose.rules import check_ids
from kfjob.joblog.events import TERMINATING, JobPhase, PodChanged, PodPhase

_ABORTS = frozenset(check_ids("worker-aborted", "native-crash"))
_SIGNALS = _ABORTS.union(check_ids("worker-crashed", "illegal-instruction", "arithmetic-signal", "bus-error"))
"""Rules about a signal: the end of a process, without a reason."""
_CRASHES = frozenset(check_ids("assertion-failed", "heap-corrupted", "openmp-twice")).union(
    check_ids("triton-assertion", "shm-too-small")
)
"""Rules about what led to a signal."""
ENDS = _ABORTS.union(check_ids("worker-failed", "child-failed", "launcher-failed", "traceback-cut"))
"""Rules about the end of a process: a suspect if nothing else in its pod tells why it ended."""
_LATE = frozenset(check_ids("child-failed", "launcher-failed", "traceback-cut"))
"""Rules of `ENDS` after which the output of a process may still arrive."""

_CONSEQUENCES = ENDS | _SIGNALS
_BUILDS = frozenset(check_ids("compile-failed", "extension-build", "op-incompatible"))
MAX_BUILD_LINES = 3
"""Lines of a compiler and its driver after the message that made them fail."""

TIMEOUTS = frozenset(check_ids("nccl-timeout", "gloo-timeout", "store-wait-timeout"))
"""Rules about ranks that waited for another one, which did not come."""
_KILLS = frozenset(check_ids("pod-killed", "pod-terminated"))
"""Rules about containers that something else ended."""
_KILL_CODES = (0, 137, 143)
"""Exit codes of containers that succeeded, or that SIGKILL or SIGTERM ended."""
_STOPS = frozenset(check_ids("agent-stopped"))
"""Rules about agents that something else ended."""

_MEETINGS = frozenset(
    check_ids("rendezvous-unresolvable", "rendezvous-no-route", "rendezvous-refused", "rendezvous-unreachable", "connect-hang")
).union(check_ids("network-unreachable", "too-few-nodes", "jax-barrier", "etcd-unreachable", "store-wait-timeout", "stalled"))
"""Rules about pods that do not meet, whose causes are guesses as long as a pod has not started."""
_FAILURES = frozenset(check_ids("worker-failed", "child-failed", "launcher-failed"))
"""Rules about the failure of a process without its reason; with no other error in its pod they are suspects."""


class Assessment(Struct, frozen=True):
    """An occurrence with its meaning in this job."""

    occurrence: Occurrence
    severity: Severity
    role: Role
    recovered: bool
    time: int | None
    count: int = 1
    suspected: bool = False  # the program went on after it, and no other error explains the failure

    @property
    def sort_key(self) -> tuple[int, int]:
        """Key that sorts by time; assessments without a time come last."""
        return (self.time if self.time is not None else 2**63, self.occurrence.order)

    @property
    def is_error(self) -> bool:
        """Whether it is an error that the job has not recovered from."""
        return self.severity is Severity.ERROR and not self.recovered

    @property
    def is_disconnect(self) -> bool:
        """Whether an agent or a process lost its connection after it had joined a round."""
        in_log = self.occurrence.line is not None
        return self.is_error and self.role is Role.CONSEQUENCE and self.occurrence.after_join and in_log


def assess_symptom(job: JobEvidence, symptom: Symptom) -> Assessment | None:
    """Return the first occurrence that the job has not recovered from, else the last one.

    If rounds end with the same error again and again, it is that of the first of these rounds: the restarts cured nothing, and
    a round that only comes to the same step once more has not recovered.
    """
    occurrences = [occurrence for occurrence in symptom.occurrences if not occurrence.resolved]
    near = job.view.reference_time
    if any(repeats_failure(job.history, earlier, occurrences[-1], near=near) for earlier in occurrences[:-1]):
        occurrences[-1] = replace(occurrences[-1], lasts=True)
    assessments = [assess(job, occurrence, symptom.count) for occurrence in occurrences]
    unrecovered = next((item for item in assessments if not item.recovered), None)
    if unrecovered is None or not unrecovered.is_error:
        return unrecovered or (assessments[-1] if assessments else None)
    newest = unrecovered.occurrence
    first = next((item for item in assessments if repeats_failure(job.history, item.occurrence, newest, near=near)), None)
    return replace(unrecovered, occurrence=first.occurrence, time=first.time) if first else unrecovered


def assess(job: JobEvidence, occurrence: Occurrence, count: int = 1) -> Assessment:
    """Return what the occurrence means in this job; `count` is how often it happened."""
    rule = occurrence.rule
    time = _find_time(job, occurrence)
    role = _find_role(job, occurrence)
    severity = rule.severity
    if severity is Severity.ERROR and occurrence.in_warning and not (rule.permanent or rule.in_warnings):
        severity = Severity.WARNING  # the program goes on after it
    if severity is Severity.ERROR and rule.in_script and job.view.phase is not None and not job.view.phase.ended:
        severity = Severity.WARNING  # the script may go on
    if severity is Severity.ERROR and rule.probed and not (occurrence.in_exception or _has_consequence(job, occurrence)):
        severity = Severity.WARNING  # the program may do without it
    recovered = severity is Severity.ERROR and not rule.permanent and has_recovered(job, occurrence, time)
    if severity is Severity.ERROR and rule.harmless_before_join and not occurrence.after_join:
        severity = _assess_before_join(job, occurrence, recovered=recovered)
    elif (role is Role.CONSEQUENCE and _is_after_success(job, occurrence)) or (
        role is not Role.CAUSE and _is_caused_by_stop(job, occurrence)
    ):
        severity, recovered = Severity.HARMLESS, False
    return Assessment(occurrence, severity, role, recovered, time, count)


def _find_role(job: JobEvidence, occurrence: Occurrence) -> Role:
    """Return how well the occurrence explains the failure, given the others of its pod."""
    rule = occurrence.rule
    if occurrence.role is not rule.role:
        return occurrence.role
    pod = job.history.pods.get(occurrence.pod)
    state = pod.state if pod and rule.id in _KILLS else None
    if state and (state.ended_by_kfjob or _has_failed_before(job, state)):
        return Role.SYMPTOM
    if rule.id in _SIGNALS and pod is not None and any(other.rule.id in _CRASHES for other in pod.symptoms.occurrences()):
        return Role.SYMPTOM
    if rule.id in ENDS and pod is not None:
        is_explained = any(_explains_end(other, occurrence) for other in pod.symptoms.occurrences())
        return Role.SYMPTOM if is_explained else Role.SUSPECT
    return rule.role


def _has_consequence(job: JobEvidence, occurrence: Occurrence) -> bool:
    """Return whether a message of a compiler, a linker or a loader explains what followed in its pod.

    A build has failed after it, or the next cause came within a few lines. Without another cause: the process has failed, or
    the message is the last that it printed.
    """
    pod, line = job.history.pods[occurrence.pod], occurrence.line or 0
    later = [item for item in pod.symptoms.occurrences() if item.order > occurrence.order and not item.rule.probed]
    errors = [item for item in later if item.rule.severity is Severity.ERROR and not item.in_warning]
    if causes := [item for item in errors if item.role in {Role.CAUSE, Role.SUSPECT} and item.rule.id not in _CONSEQUENCES]:
        return any(item.rule.id in _BUILDS or 0 <= item.first_position - line <= MAX_BUILD_LINES for item in causes)
    has_failed = job.view.phase is JobPhase.FAILED or (
        pod.state is not None and (pod.state.phase is PodPhase.FAILED or bool(pod.state.exit_code or pod.state.restarts))
    )
    has_trained = occurrence.mark is not None and pod.readings > occurrence.mark.readings
    is_last = pod.lines - line <= MAX_BUILD_LINES and not has_trained and job.view.phase is not JobPhase.RUNNING
    return bool(errors) or has_failed or is_last


def _has_failed_before(job: JobEvidence, killed: PodChanged) -> bool:
    """Return whether another pod had failed by itself before this one was killed: a job is ended together."""
    states = (pod.state for pod in job.history.pods.values() if pod.state and pod.state.pod != killed.pod)
    failed = [state for state in states if state.phase is PodPhase.FAILED and state.exit_code not in _KILL_CODES]
    return any((state.last_ended or state.time or 0) < (killed.last_ended or killed.time or 0) for state in failed)


def _explains_end(other: Occurrence, end: Occurrence) -> bool:
    """Return whether the other occurrence tells why the process of the same pod ended."""
    if other.rule.id in ENDS or other.rule.subject is Subject.POD or other.rule.severity is not Severity.ERROR:
        return False
    if other.rule.role is Role.SYMPTOM:
        return False
    is_late = (
        end.rule.id in _LATE and other.in_exception and other.rule.role is not Role.CONSEQUENCE and other.is_in_round_of(end)
    )
    return end.rule.id in _ABORTS or other.order <= end.order or other.in_previous_container or is_late


def _find_time(job: JobEvidence, occurrence: Occurrence) -> int | None:
    """Return when it happened. A state without the time of the end comes late: the end of the log may be earlier."""
    near = job.view.reference_time
    time = occurrence.timestamp.resolve(near)
    pod = job.history.pods.get(occurrence.pod)
    has_end = pod is not None and pod.state is not None and pod.state.last_ended is not None
    if pod and occurrence.rule.subject is Subject.POD and not occurrence.pod_waits and not has_end:
        end = pod.recent.timestamp().resolve(near)
        return min(time, end) if time is not None and end is not None else time
    return time


def _is_after_success(job: JobEvidence, occurrence: Occurrence) -> bool:
    """Return whether the pod's agent had reported success before: peers may exit in any order."""
    pod = job.history.pods.get(occurrence.pod)
    return pod is not None and pod.finished is not None and occurrence.order > pod.finished


def _is_caused_by_stop(job: JobEvidence, occurrence: Occurrence) -> bool:
    """Return whether the container or its agent ended because the job was stopped, or had succeeded: kfjob ends it then."""
    pod = job.history.pods.get(occurrence.pod)
    if occurrence.rule.subject is not Subject.POD:
        was_stopped = job.view.phase is JobPhase.STOPPED and not job.view.is_end_unknown
        was_ended = bool(pod and pod.state and pod.state.ended_by_kfjob)
        return (was_stopped or was_ended or _is_being_removed(job)) and occurrence.rule.id in _STOPS
    is_end = occurrence.rule.id in _KILLS and (pod is None or all(order < occurrence.order for order, _ in pod.starts))
    return job.view.phase is JobPhase.STOPPED or (job.view.phase is JobPhase.SUCCEEDED and is_end)


def _is_being_removed(job: JobEvidence) -> bool:
    """Return whether all pods have been told to end: the job was deleted, and not one of its pods."""
    states = [pod.state for pod in job.view.pods.values() if pod.state]
    return any(state.reason == TERMINATING for state in states) and all(
        state.reason == TERMINATING or state.phase.ended for state in states
    )


def _assess_before_join(job: JobEvidence, occurrence: Occurrence, *, recovered: bool) -> Severity:
    """Return the severity of a failed connection of an agent that had not joined a round: the agent retries."""
    pod = job.history.pods[occurrence.pod]
    has_later_start = any(order > occurrence.order for order, _ in pod.starts)
    if has_later_start or pod.finished or recovered or (pod.progress and pod.progress[0] > occurrence.order):
        return Severity.HARMLESS
    state = pod.state
    gave_up = any(
        other.order > occurrence.order
        and other.rule.severity is Severity.ERROR
        and (other.in_exception or other.raised or not other.rule.harmless_before_join)
        for other in pod.symptoms.occurrences()
    )
    if (
        gave_up
        or occurrence.in_exception
        or occurrence.raised
        or (state and (state.phase is PodPhase.FAILED or state.restarts or state.exit_code))
    ):
        return Severity.ERROR
    return Severity.HARMLESS if job.view.training.lines else Severity.WARNING


def mark_suspect(job: JobEvidence, assessments: list[Assessment]) -> list[Assessment]:
    """Return the assessments, in which the last error that the program survived is a suspect if no other cause is left.

    Words of the program tell that it went on after an error, not that the error had no effect.
    """
    errors = [item for item in assessments if item.is_error]
    has_failed = job.view.phase is JobPhase.FAILED or (bool(errors) and job.view.phase is not JobPhase.SUCCEEDED)
    failed = {name for name, pod in job.history.pods.items() if pod.state and pod.state.phase is PodPhase.FAILED}
    failed |= {item.occurrence.pod for item in errors}
    survived = [item for item in assessments if _may_explain(item)]
    survived = [item for item in survived if item.occurrence.pod in failed] or survived
    if not has_failed or not survived or not all(_is_failure(item) for item in errors):
        return assessments
    last = max(survived, key=lambda item: item.occurrence.order)
    return [_to_suspect(item) if item is last else _demote(item) for item in assessments]


def subordinate_meetings(assessments: list[Assessment]) -> list[Assessment]:
    """Return the assessments; where a pod has not started, that other pods do not meet it is a consequence, without guesses."""
    if not any(item.is_error and item.occurrence.pod_waits for item in assessments):
        return assessments
    kept = [item for item in assessments if item.is_error or item.occurrence.rule.id not in _MEETINGS]
    return [replace(item, role=Role.CONSEQUENCE) if item.occurrence.rule.id in _MEETINGS else item for item in kept]


def _is_failure(item: Assessment) -> bool:
    """Return whether the error says only that something failed."""
    return item.role is Role.SYMPTOM or item.occurrence.rule.id in _FAILURES


def _may_explain(item: Assessment) -> bool:
    """Return whether it is an error in a log that the program went on after, and that could explain a failure."""
    survived = item.recovered and item.severity is Severity.ERROR
    return survived and item.role in {Role.CAUSE, Role.SUSPECT} and item.occurrence.line is not None


def _to_suspect(item: Assessment) -> Assessment:
    return replace(item, severity=Severity.ERROR, role=Role.SUSPECT, recovered=False, suspected=True)


def _demote(item: Assessment) -> Assessment:
    """Return the assessment; the failure of a process is a symptom where a suspect explains it."""
    return replace(item, role=Role.SYMPTOM) if item.is_error and _is_failure(item) else item
