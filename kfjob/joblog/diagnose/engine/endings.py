"""How a job ended: the verdict, and the reports and last lines of the pods whose success was not seen."""

from __future__ import annotations

from kfjob.base.patterns import Pattern
from kfjob.joblog.agents.program_lines import condense_lines, find_program_lines
from kfjob.joblog.diagnose.diagnosis import Verdict
from kfjob.joblog.diagnose.engine.history import MAX_CONTEXT_QUOTE, PodHistory
from kfjob.joblog.diagnose.engine.job_evidence import JobEvidence
from kfjob.joblog.diagnose.engine.messages import is_warning
from kfjob.joblog.diagnose.engine.program_reports import has_full_bar
from kfjob.joblog.events import JobPhase
from kfjob.redaction import cut_text

MAX_LINES_AFTER_REPORT = 12
"""Lines after a report of success, such as the summary of a tracker."""
LAST_LINES = 3
"""Last lines of a pod's log to quote if no error explains the end."""
MAX_PROBLEMS = 4
"""Earlier lines to quote because they name a problem."""
GAP = "…"
"""Stands for the lines between a problem and the last lines."""
_PROBLEM = Pattern(
    r"(?i)\b(?:errors?|fatal|failed|failure|cannot|could not|unable to|not found|denied|refused|invalid|abort(?:ed|ing)?"
    r"|terminat(?:ed|ing)|no such)\b"
)
MAX_LAST_PODS = 3
"""Pods whose last lines are quoted."""


def find_verdict(job: JobEvidence, *, has_error: bool, has_report: bool) -> Verdict:
    """Return what is known of the job's end; `has_error`: an error was found that it has not recovered from."""
    phase = job.view.phase
    if phase is JobPhase.FAILED or has_error:
        return Verdict.FAILED
    if phase is JobPhase.SUCCEEDED:
        return Verdict.SUCCEEDED
    if phase is not None and not phase.ended:
        return Verdict.RUNNING
    if job.view.has_agents_success:
        return Verdict.SUCCEEDED
    if phase is not None and not job.view.is_end_unknown:
        return Verdict.STOPPED
    return Verdict.REPORTED if has_report else Verdict.UNKNOWN


def find_reports(job: JobEvidence) -> tuple[tuple[str, str], ...]:
    """Return the pods whose logs end with the program's own report of success, and its text."""
    reports = ((name, _find_report(pod)) for name, pod in job.history.pods.items() if not pod.has_succeeded)
    return tuple((name, cut_text(text, MAX_CONTEXT_QUOTE)) for name, text in reports if text)


def _find_report(pod: PodHistory) -> str:
    """Return the report of success at the end of the log; "" without one."""
    if has_full_bar(pod.recent.last_text):
        return pod.recent.last_text.rpartition("\r")[2]
    reports = [report for report in (pod.activity.success and pod.activity.success[1:], pod.suite_runs.result) if report]
    line, text = max(reports, default=(0, ""))
    return text if text and pod.lines - line <= MAX_LINES_AFTER_REPORT else ""


def quote_ends(job: JobEvidence) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the last lines of the pods that did not report success; of all pods if the job's success is remarkable."""
    pods = [(name, pod) for name, pod in job.history.pods.items() if job.view.remark or not pod.has_succeeded]
    ends = ((name, tuple(cut_text(text, MAX_CONTEXT_QUOTE) for text in _find_last_texts(job, pod))) for name, pod in pods)
    return tuple((name, texts) for name, texts in ends if texts)[:MAX_LAST_PODS]


def _find_last_texts(job: JobEvidence, pod: PodHistory) -> list[str]:
    """Return the last lines of the program; those of the agent of a failed job if the program printed none lately."""
    texts = condense_lines(find_program_lines(pod.recent.texts()))
    problems = [text for text in texts[:-LAST_LINES] if _names_problem(text)][-MAX_PROBLEMS:]
    last = texts[-LAST_LINES:] or ([] if job.view.remark else pod.recent.last_texts(LAST_LINES))
    return [*problems, GAP, *last] if problems else last


def _names_problem(text: str) -> bool:
    """Return whether the line names a problem that is no warning and that the program does not survive by its own words."""
    return _PROBLEM.search(text) is not None and not is_warning(text)
