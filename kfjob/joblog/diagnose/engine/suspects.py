"""Errors that a program has survived, where nothing else explains that the job failed after all."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from kfjob.joblog.diagnose.engine.assessment import Assessment
from kfjob.joblog.diagnose.engine.job_evidence import JobEvidence
from kfjob.joblog.diagnose.rule import Role, Severity
from kfjob.joblog.diagnose.rules import check_ids
from kfjob.joblog.events import JobPhase, PodPhase

_FAILURES = frozenset(check_ids("worker-failed", "child-failed", "launcher-failed"))
"""Rules about the failure of a process without its reason; with no other error in its pod they are suspects."""


def suspect_survived(job: JobEvidence, assessments: list[Assessment]) -> list[Assessment]:
    """Return the assessments, in which the last error that the program survived is a suspect if no other cause is left.

    Words of the program or of a run of tests tell that it went on after an error, not that the error had no effect.
    """
    errors = [item for item in assessments if item.is_error]
    if not _has_failed(job, errors) or not all(_is_failure(item) for item in errors):
        return assessments
    survived = [item for item in assessments if _may_explain(item)]
    pods = _find_failed_pods(job, errors)
    survived = [item for item in survived if item.occurrence.pod in pods] or survived
    if not survived:
        return assessments
    last = _name_error(max(survived, key=lambda item: item.occurrence.order))
    suspects = [item for item in survived if _name_error(item) == last]
    return [_suspect(item) if any(item is other for other in suspects) else _demote(item) for item in assessments]


def _has_failed(job: JobEvidence, errors: Collection[Assessment]) -> bool:
    """Return whether the job failed, or an error shows that a pod or a process did."""
    if job.view.phase is JobPhase.SUCCEEDED:
        return False
    return bool(errors) or job.view.phase is JobPhase.FAILED


def _find_failed_pods(job: JobEvidence, errors: Collection[Assessment]) -> frozenset[str]:
    failed = (name for name, pod in job.history.pods.items() if pod.state and pod.state.phase is PodPhase.FAILED)
    return frozenset((*failed, *(item.occurrence.pod for item in errors)))


def _is_failure(item: Assessment) -> bool:
    """Return whether the error says only that something failed."""
    return item.role is Role.SYMPTOM or item.occurrence.rule.id in _FAILURES


def _may_explain(item: Assessment) -> bool:
    """Return whether it is an error in a log that the program went on after, and that could explain a failure."""
    survived = item.provoked or (item.recovered and item.severity is Severity.ERROR)
    return survived and item.role in {Role.CAUSE, Role.SUSPECT} and item.occurrence.line is not None


def _name_error(item: Assessment) -> tuple[str, str]:
    """Return what is the same for the same error in several pods."""
    return item.occurrence.rule.id, item.occurrence.values.get("what", "")


def _suspect(item: Assessment) -> Assessment:
    return replace(item, severity=Severity.ERROR, role=Role.SUSPECT, recovered=False, suspected=True)


def _demote(item: Assessment) -> Assessment:
    """Return the assessment; the failure of a process is a symptom where a suspect explains it."""
    return replace(item, role=Role.SYMPTOM) if item.is_error and _is_failure(item) else item
