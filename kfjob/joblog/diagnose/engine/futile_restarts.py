"""Failures that a restart of the training processes cannot cure: every further round would end with them."""

from __future__ import annotations

from kfjob.base.patterns import Pattern
from kfjob.joblog.diagnose.engine.history import JobHistory, Occurrence, PodHistory, Symptom
from kfjob.joblog.diagnose.engine.repeated_failures import repeats_failure
from kfjob.joblog.diagnose.rule import Role, Severity, Subject

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
_LOCAL_RANK = Pattern(r"\(exitcode: \d+\) local_rank: (\d{1,6}) ")


def find_futile_restart(history: JobHistory) -> Occurrence | None:
    """Return the failure that ended a worker and would end the next one too; None if a restart may help.

    A failure after progress is left to the restarts: the next round may get further. A round that only comes to the same step
    again, and ends with the same exception, has made none.
    """
    for pod in history.pods.values():
        newest = _find_newest(pod) if _has_failed(pod) else None
        if newest is None or not _is_end(pod, newest[1]):
            continue
        symptom, occurrence = newest
        rounds = _first_of_each_round(symptom)
        needed = occurrence.rule.futile_after
        if needed is not None and len(rounds) >= needed and not any(other.progress for other in history.pods.values()):
            return occurrence
        is_again = len(rounds) > 1 and repeats_failure(history, *rounds[-2:], near=history.find_newest_time())
        if is_again and not _printed_more(*rounds[-2:]) and not _may_be_chance(rounds[-1]):
            return occurrence
    return None


def _printed_more(before: Occurrence, after: Occurrence) -> bool:
    """Return whether a new container printed more lines before its failure than the one before: it got further."""
    if before.mark is None or after.mark is None or before.in_previous_container is after.in_previous_container:
        return False
    return after.mark.line > before.mark.line


def _has_failed(pod: PodHistory) -> bool:
    """Return whether a worker or the container ended with the exit code of an exception."""
    symptom = pod.symptoms.get(("worker-failed", ""))
    codes = {occurrence.values.get("code") for occurrence in symptom.occurrences} if symptom else set()
    return bool(EXIT_CODES & ({str(pod.state.exit_code)} if pod.state and pod.state.exit_code else codes))


def _find_newest(pod: PodHistory) -> tuple[Symptom, Occurrence] | None:
    """Return the last error in the log: an earlier one was handled, or belongs to an earlier round."""
    errors = [
        (symptom, symptom.occurrences[-1])
        for symptom in pod.symptoms.values()
        if symptom.rule.subject in {Subject.LOG, Subject.EXCEPTION}
        and symptom.rule.severity is Severity.ERROR
        and symptom.rule.role is not Role.SYMPTOM
        and symptom.occurrences
    ]
    return max(errors, key=lambda error: error[1].order, default=None)


def _is_end(pod: PodHistory, occurrence: Occurrence) -> bool:
    """Return whether the error can have ended the process that torchrun calls failed: these are its last words."""
    if occurrence.further.lines:
        return False
    rank = _find_failed_rank(pod)
    return rank is None or not occurrence.ranks or rank in occurrence.ranks


def _find_failed_rank(pod: PodHistory) -> int | None:
    """Return the global rank of the newest process that the agent calls failed; None if it is unknown."""
    symptom = pod.symptoms.get(("worker-failed", ""))
    evidence = symptom.occurrences[-1].evidence if symptom and symptom.occurrences else ()
    match = next((match for line in evidence if (match := _LOCAL_RANK.search(line))), None)
    local_rank = int(match[1]) if match else None
    return pod.ranks[local_rank] if local_rank is not None and local_rank < len(pod.ranks) else None


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
