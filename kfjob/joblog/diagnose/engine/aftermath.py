"""Whether a job went on after an error: a later round trained, progress continued, or the program reported its own end.

A round that ends with the same failure as an earlier one, and comes no further, has not recovered. If every further round would
end so, a restart is futile.
"""

from __future__ import annotations

from kfjob.base.patterns import Pattern
from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.engine.history import HighestStep, JobEvidence, JobHistory, Occurrence, PodHistory, Symptom
from kfjob.joblog.diagnose.engine.matching import mask_numbers
from kfjob.joblog.diagnose.rule import Role, Severity, Subject
from kfjob.joblog.events import NOT_RESTARTED, JobPhase
from kfjob.joblog.lines.timestamps import Timestamp

RECOVERY_READINGS = 3
"""Progress lines of a pod after an error that mean that the job recovered, in a log without times."""
MIN_LATER_READINGS = 2
"""Progress lines of the only process of a pod after an exception that mean the same."""
MAX_LINES_BETWEEN = 2
"""Lines between two exceptions of a process that may belong to the end of the first one."""
RECOVERY_TIME = 60 * SECOND
"""Progress this long after an error means that the job recovered: no collective continues without a lost rank."""

EXIT_CODES = frozenset({"1", "2", "126", "127"})
"""Exit codes of a Python program that ended with an exception or refused its arguments, and of a program that is missing."""

TRANSIENT = Pattern(
    r"(?i)time.?out|timed out|connect|network|socket|http|\burl|\bssl|dist\w*error|\bnccl|\bgloo|\bcuda|\bcudnn|\becc\b"
    r"|(?:\b|dist|tcp|file|hash|prefix)store|rendezvous|\bpeer|unavailable|throttl|rate.?limit|too many requests|temporar"
    r"|in use|already (?:running|bound)|\block(?:ed|s|file)?\b|held by"
    r"|try again|retry|busy|interrupt|broken pipe|\bEOF|out of memory|memoryerror|no space|disk|i/o error|stale file|grpc"
    r"|\brpc|terminated|killed|exited"
)
"""Words of exceptions that come from devices, networks or other processes: of these, two equal ones may be chance."""


def has_recovered(job: JobEvidence, occurrence: Occurrence, time: int | None) -> bool:
    """Return whether the job went on: it succeeded, a later round trained, progress continued, or the program says so."""
    if job.view.phase is JobPhase.SUCCEEDED:
        return True
    pod = job.history.pods.get(occurrence.pod)
    if pod and occurrence.line and (occurrence.announcement.handled or _continued(job, pod, occurrence)):
        return True
    is_state = occurrence.rule.subject is Subject.POD  # a state may arrive before the log that led to it
    if pod and pod.finished is not None and (is_state or pod.finished > occurrence.order):
        return True
    return not occurrence.lasts and _has_progress_since(job, occurrence, time)


def _has_progress_since(job: JobEvidence, occurrence: Occurrence, time: int | None) -> bool:
    """Return whether a later round trained, or progress continued."""
    pod = job.history.pods.get(occurrence.pod)
    if pod and occurrence.mark and not _has_times(job) and pod.readings - occurrence.mark.readings >= RECOVERY_READINGS:
        return True
    if pod and pod.progress and occurrence.rule.subject is not Subject.POD:
        progress_order = pod.progress[0]
        if not _was_not_restarted(job) and any(occurrence.order < order < progress_order for order, _ in pod.starts):
            return True
    if not occurrence.timestamp.exact:
        latest = occurrence.mark.latest if occurrence.mark else occurrence.latest
        time = latest.resolve(job.view.reference_time) if latest else None
    return time is not None and _has_progress_after(job, time) and not _was_not_restarted(job)


def _was_not_restarted(job: JobEvidence) -> bool:
    """Return whether kfjob ended the job because of its failure; a later round may have printed progress before that."""
    return job.view.job is not None and job.view.job.reason == NOT_RESTARTED


def _continued(job: JobEvidence, pod: PodHistory, occurrence: Occurrence) -> bool:
    """Return whether the process that reported the error went on: it printed progress, success, or its real last exception."""
    in_script = occurrence.rule.in_script
    is_alone = not occurrence.stream and _is_alone(job, pod)
    has_success = pod.success is not None and pod.success.order > occurrence.order
    if occurrence.in_previous_container:
        return False
    readings = pod.readings - occurrence.mark.readings if occurrence.mark else 0
    if not (occurrence.in_exception or in_script):  # a script may report success although its program failed
        shows_success = has_success and (readings > 0 or occurrence.rule.role is Role.CONSEQUENCE)
        return is_alone and shows_success and not _ended_badly(pod, occurrence)
    if in_script and any(_ends_process(other) and other.order > occurrence.order for other in pod.symptoms.occurrences()):
        return True
    if occurrence.in_exception and any(_supersedes(pod, other, occurrence) for other in pod.symptoms.occurrences()):
        return True
    needed = 1 if in_script else MIN_LATER_READINGS if is_alone else RECOVERY_READINGS
    has_progress = readings >= needed and (is_alone or not _has_times(job))
    return (has_success or has_progress) and not _ended_badly(pod, occurrence)


def _is_alone(job: JobEvidence, pod: PodHistory) -> bool:
    """Return whether the pod has one process, so that lines without a prefix are its own."""
    return pod.has_one_process and job.view.config.processes_per_node in {None, 1}


def _supersedes(pod: PodHistory, other: Occurrence, occurrence: Occurrence) -> bool:
    """Return whether the other exception ended the process that had reported this one long before."""
    if not other.is_in_round_of(occurrence):
        return False
    if other.rule is occurrence.rule and other.evidence == occurrence.evidence:
        return False  # another process with the same failure: not every log tells its processes apart
    is_same_process = other.stream == occurrence.stream and (occurrence.stream != "" or pod.has_one_process)
    is_later = other.first_position - occurrence.last_position > MAX_LINES_BETWEEN
    return is_same_process and is_later and other.in_exception and _ends_process(other)


def _ends_process(occurrence: Occurrence) -> bool:
    """Return whether the error may have ended the process that printed it; a script goes on after a failed command."""
    rule = occurrence.rule
    explains = rule.severity is Severity.ERROR and rule.role in {Role.CAUSE, Role.SUSPECT} and not rule.in_script
    return explains and not occurrence.announcement.handled and not occurrence.in_warning


def _ended_badly(pod: PodHistory, occurrence: Occurrence) -> bool:
    """Return whether a process of the pod failed after this error, and no other error says why."""
    later = [other for other in pod.symptoms.occurrences() if other.order > occurrence.order]
    ends = [other.order for other in later if other.rule.role is Role.SYMPTOM and other.rule.severity is Severity.ERROR]
    causes = [other.order for other in later if other.rule.explains_end]
    return bool(ends) and not any(order < max(ends) for order in causes)


def _has_times(job: JobEvidence) -> bool:
    """Return whether progress lines have times, so that they show how long training went on."""
    pods = job.history.pods.values()
    return any(pod.progress and pod.progress[1].resolve(job.view.reference_time) is not None for pod in pods)


def _has_progress_after(job: JobEvidence, time: int) -> bool:
    """Return whether a round that started after this time trained, or progress went on for `RECOVERY_TIME`."""
    near, pods = job.view.reference_time, job.history.pods.values()
    times = [pod.progress[1].resolve(near) for pod in pods if pod.progress]
    progress = max((item for item in times if item is not None), default=None)
    if progress is None:
        return False
    starts = (timestamp.resolve(near) for pod in pods for _, timestamp in pod.starts)
    return progress - time > RECOVERY_TIME or any(start is not None and time < start <= progress for start in starts)


def repeats_failure(history: JobHistory, before: Occurrence, after: Occurrence, *, near: int | None) -> bool:
    """Return whether the failure ended an earlier round like a later one, and no round since the earlier one got further.

    Numbers may differ: a message can hold a pid, a port or an address. `near` gives a year to times without one.
    """
    if before.mark is None or after.mark is None or before.mark.round_start >= after.mark.round_start:
        return False
    is_same = [mask_numbers(line) for line in before.evidence] == [mask_numbers(line) for line in after.evidence]
    return is_same and not before.announcement.handled and not trained_beyond(history, before, near)


def trained_beyond(history: JobHistory, failure: Occurrence, near: int | None) -> bool:
    """Return whether a round after the one of this failure came beyond all steps before that round.

    The other ranks print while one fails, so the order of their lines around the failure means nothing. `near` gives a year to
    times without one.
    """
    highest = _find_highest_step(history, near)
    if highest is None:
        return False
    pod, reached = highest
    starts = history.pods[failure.pod].starts if failure.pod in history.pods else []
    order, timestamp = next((start for start in starts if start[0] > failure.order), (failure.order, failure.timestamp))
    time, reached_time = _resolve(timestamp, near), _resolve(reached.timestamp, near)
    if pod == failure.pod or time is None or reached_time is None:  # saved logs come one after the other
        return reached.order > order
    return reached_time > time


def _find_highest_step(history: JobHistory, near: int | None) -> tuple[str, HighestStep] | None:
    """Return the highest epoch and step of all pods, and the pod that had them first."""
    reached = [(name, pod.highest_step) for name, pod in history.pods.items() if pod.highest_step is not None]
    if not reached:
        return None
    highest = max((item.epoch, item.step) for _, item in reached)
    reached = [(name, item) for name, item in reached if (item.epoch, item.step) == highest]
    times = [_resolve(item.timestamp, near) for _, item in reached]
    if None in times:
        return min(reached, key=lambda item: item[1].order)
    return min(zip(times, reached, strict=True), key=lambda item: item[0] or 0)[1]


def _resolve(timestamp: Timestamp, near: int | None) -> int | None:
    return timestamp.resolve(near) if timestamp.exact else None


def find_futile_restart(history: JobHistory) -> Occurrence | None:
    """Return the failure that ended a worker and would end the next one too; None if a restart may help.

    A failure after progress is left to the restarts: the next round may get further. A round that only comes to the same step
    again, and ends with the same exception, has made none.
    """
    for pod in history.pods.values():
        newest = _find_newest_error(pod) if _has_failed(pod) else None
        if newest is None:
            continue
        symptom, occurrence = newest
        rounds = _first_of_each_round(symptom)
        needed = occurrence.rule.futile_after
        if needed is not None and len(rounds) >= needed and not any(other.progress for other in history.pods.values()):
            return occurrence
        is_again = len(rounds) > 1 and repeats_failure(history, *rounds[-2:], near=history.find_newest_time())
        if is_again and not _may_be_chance(rounds[-1]):
            return occurrence
    return None


def _has_failed(pod: PodHistory) -> bool:
    """Return whether a worker or the container ended with the exit code of an exception."""
    symptom = pod.symptoms.get(("worker-failed", ""))
    codes = {occurrence.values.get("code") for occurrence in symptom.occurrences} if symptom else set()
    return bool(EXIT_CODES & ({str(pod.state.exit_code)} if pod.state and pod.state.exit_code else codes))


def _find_newest_error(pod: PodHistory) -> tuple[Symptom, Occurrence] | None:
    """Return the last error in the log: an earlier one was handled, or belongs to an earlier round."""
    errors = [
        (symptom, symptom.occurrences[-1])
        for symptom in pod.symptoms.values()
        if symptom.rule.subject in {Subject.LOG, Subject.EXCEPTION} and symptom.rule.explains_end and symptom.occurrences
    ]
    return max(errors, key=lambda error: error[1].order, default=None)


def _first_of_each_round(symptom: Symptom) -> list[Occurrence]:
    """Return the first occurrence of each round: other processes of the pod may fail in the same way."""
    rounds: dict[int, Occurrence] = {}
    for occurrence in symptom.occurrences:
        rounds.setdefault(occurrence.mark.round_start if occurrence.mark else occurrence.order, occurrence)
    return list(rounds.values())


def _may_be_chance(failure: Occurrence) -> bool:
    """Return whether two rounds may end with this failure although the next one does not."""
    if failure.rule.futile_after is not None:
        return False
    is_exception = failure.rule.subject is Subject.EXCEPTION or failure.in_exception or failure.rule.wraps
    text = " ".join((failure.values.get("what", ""), *failure.evidence))
    return not is_exception or TRANSIENT.search(text) is not None
