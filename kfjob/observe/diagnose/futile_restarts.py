"""Failures that a restart of the training processes cannot cure: every further round would end with them."""

from __future__ import annotations

from kfjob.observe.diagnose.occurrences import JobHistory, Occurrence, PodHistory, Symptom
from kfjob.observe.diagnose.rule import Role, Severity, Subject

EXIT_CODES = frozenset({"1", "2", "126", "127"})
"""Exit codes of a Python program that ended with an exception or refused its arguments, and of a program that is missing."""

DETERMINISTIC = (
    "ArgumentError", "AssertionError", "AttributeError", "ImportError", "IndexError", "IsADirectoryError", "KeyError",
    "NameError", "NotADirectoryError", "NotImplementedError", "PermissionError", "RecursionError", "TypeError",
    "UnboundLocalError", "UnicodeDecodeError", "ValidationError", "ValueError", "ZeroDivisionError",
)  # fmt: skip
"""Exceptions that come from the program and its input. Of others, such as time-outs, two equal ones may be chance."""
EXCEPTION_ROUNDS = 2
"""Rounds that end with the same such exception after which another round is futile."""


def find_futile_restart(history: JobHistory) -> Occurrence | None:
    """Return the failure that ended a worker and would end the next one too; None if a restart may help.

    A failure after progress is left to the restarts: the next round may get further.
    """
    for pod in history.pods.values():
        newest = _find_newest(pod) if _has_failed(pod) else None
        if newest is None:
            continue
        symptom, occurrence = newest
        rounds = _futile_after(symptom, occurrence)
        if rounds and len(symptom.occurrences) >= rounds and not _has_progress(history, symptom.occurrences[-rounds]):
            return occurrence
    return None


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


def _futile_after(symptom: Symptom, occurrence: Occurrence) -> int | None:
    if symptom.rule.subject is not Subject.EXCEPTION:
        return symptom.rule.futile_after
    kind = occurrence.values.get("what", "").strip("`").partition(":")[0].rpartition(".")[2]
    return EXCEPTION_ROUNDS if kind in DETERMINISTIC else None


def _has_progress(history: JobHistory, since: Occurrence) -> bool:
    """Return whether training made progress: with a restart after this failure, or before it in its only round."""
    orders = [pod.progress[0] for pod in history.pods.values() if pod.progress]
    is_first = since.rule.futile_after == 1
    return any(is_first or order > since.order for order in orders)
