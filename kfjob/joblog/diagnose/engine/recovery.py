"""Whether a job went on after an error: a later round trained, progress continued, or the program reported its own end."""

from __future__ import annotations

from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.engine.history import Occurrence, PodHistory
from kfjob.joblog.diagnose.engine.job_evidence import JobEvidence
from kfjob.joblog.diagnose.rule import Role, Severity, Subject
from kfjob.joblog.events import NOT_RESTARTED, JobPhase

RECOVERY_READINGS = 3
"""Progress lines of a pod after an error that mean the same in a log without times."""
MIN_FURTHER = 2
"""Progress lines of the only process of a pod after an exception that mean the same if it printed progress before."""
MAX_LINES_BETWEEN = 2
"""Lines between two exceptions of a process that may belong to the end of the first one."""
RECOVERY_TIME = 60 * SECOND
"""Progress this long after an error means that the job recovered: no collective continues without a lost rank."""


def has_recovered(job: JobEvidence, occurrence: Occurrence, time: int | None) -> bool:
    """Return whether the job went on: it succeeded, a later round trained, progress continued, or the program says so."""
    if job.view.phase is JobPhase.SUCCEEDED:
        return True
    pod = job.history.pods.get(occurrence.pod)
    if pod and occurrence.line and (occurrence.going_on.handled or _went_on(job, pod, occurrence)):
        return True
    is_state = occurrence.rule.subject is Subject.POD  # a state may arrive before the log that led to it
    if pod and pod.finished is not None and (is_state or pod.finished > occurrence.order):
        return True
    return not occurrence.lasts and _has_progress_since(job, occurrence, time)


def may_have_gone_on(job: JobEvidence, occurrence: Occurrence) -> bool:
    """Return whether an exception may have been handled: lines follow that any of several processes may have printed.

    A process that an exception ends may take `END_TIME` for that, while the others print.
    """
    pod = job.history.pods.get(occurrence.pod)
    if pod is None or occurrence.mark is None or not occurrence.in_exception or occurrence.in_previous_container:
        return False
    if occurrence.stream or occurrence.ranks or pod.has_one_process or ("worker-failed", "") not in pod.symptoms:
        return False
    further = occurrence.further
    return further.lasted or (further.lines > 0 and not occurrence.mark.timestamp.exact)


def has_later_end(job: JobEvidence, occurrence: Occurrence) -> bool:
    """Return whether a later exception of the same round ended a process, and nothing shows that this one was handled, too."""
    pod, mark = job.history.pods.get(occurrence.pod), occurrence.mark
    return any(
        other.order > occurrence.order
        and other.in_exception
        and _ends_process(other)
        and not other.further.lines
        and (mark is None or other.mark is None or other.mark.round_start == mark.round_start)
        for other in (pod.symptoms.occurrences() if pod else ())
    )


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


def _went_on(job: JobEvidence, pod: PodHistory, occurrence: Occurrence) -> bool:
    """Return whether the process printed more than the end of an exception: steps, success, or its real last exception."""
    in_script = occurrence.rule.in_script
    if occurrence.in_previous_container or not (occurrence.in_exception or occurrence.going_on.retried or in_script):
        return False
    if in_script and any(_ends_process(other) and other.order > occurrence.order for other in pod.symptoms.occurrences()):
        return True
    if occurrence.in_exception and any(_supersedes(pod, other, occurrence) for other in pod.symptoms.occurrences()):
        return True
    is_own = occurrence.stream != "" or _is_alone(job, pod)
    if occurrence.in_exception and is_own and occurrence.further.lasted:
        return True
    success = pod.activity.success
    has_success = success is not None and success[0] > occurrence.order
    needed = 1 if occurrence.going_on.retried or occurrence.after_warning or in_script else RECOVERY_READINGS
    has_steps = occurrence.mark is not None and pod.activity.steps - occurrence.mark.steps >= needed
    is_alone = not occurrence.stream and _is_alone(job, pod)
    has_steps = has_steps and (is_alone or not _has_times(job))
    return (has_success or has_steps or (is_alone and _printed_more(pod, occurrence))) and not _ended_badly(pod, occurrence)


def _is_alone(job: JobEvidence, pod: PodHistory) -> bool:
    """Return whether the pod has one process, so that lines without a prefix are its own."""
    return pod.has_one_process and job.view.config.processes_per_node in {None, 1}


def _printed_more(pod: PodHistory, occurrence: Occurrence) -> bool:
    """Return whether training went on: its newest lines are beyond those before the exception, so no buffer held them back."""
    mark = occurrence.mark
    if mark is None or pod.furthest is None or not mark.readings:
        return False
    return pod.furthest.order > occurrence.order and pod.readings - mark.readings >= MIN_FURTHER


def _supersedes(pod: PodHistory, other: Occurrence, occurrence: Occurrence) -> bool:
    """Return whether the other exception ended the process that had reported this one long before."""
    if not occurrence.mark or not other.mark or other.mark.round_start != occurrence.mark.round_start:
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
    return explains and not occurrence.going_on.handled and not occurrence.in_warning


def _ended_badly(pod: PodHistory, occurrence: Occurrence) -> bool:
    """Return whether a process of the pod failed after this error, and no other error says why."""
    later = [other for other in pod.symptoms.occurrences() if other.order > occurrence.order]
    ends = [other.order for other in later if other.rule.role is Role.SYMPTOM and other.rule.severity is Severity.ERROR]
    causes = [other.order for other in later if other.rule.role is not Role.SYMPTOM and other.rule.severity is Severity.ERROR]
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
