"""Diagnosis of a job from its symptoms: the first cause, its consequences, and what is overcome or harmless.

Of a job without an error, it holds how the job ended: the verdict, the programs' own reports of success, and the last lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from kfjob.base.patterns import Pattern
from kfjob.joblog.agents.program_lines import condense_lines, find_program_lines
from kfjob.joblog.diagnose.diagnosis import Diagnosis, Issue, Verdict
from kfjob.joblog.diagnose.engine.assessment import Assessment, assess, assess_symptom, mark_suspect
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.history import JobEvidence, PodHistory
from kfjob.joblog.diagnose.engine.incidents import is_warning
from kfjob.joblog.diagnose.engine.issues import Commands, group_assessments
from kfjob.joblog.diagnose.engine.job_checks import JOB_CHECKS
from kfjob.joblog.diagnose.engine.matching import MAX_CONTEXT_QUOTE
from kfjob.joblog.diagnose.engine.program_reports import has_full_bar
from kfjob.joblog.diagnose.engine.rank_checks import RANK_CHECKS, read_rank_lines
from kfjob.joblog.diagnose.rule import LogSource, Role, Severity, Subject
from kfjob.joblog.events import JobPhase
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.silence import find_silence
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


def diagnose(collector: SymptomCollector, view: JobView, *, job: str, source: LogSource = LogSource.JOB) -> Diagnosis:
    """Return the diagnosis of job `job` from the events so far."""
    history = collector.history
    if view.reference_time is None:
        view = replace(view, reference_time=history.find_newest_time())
    evidence = JobEvidence(view, history)
    assessments = [result for symptom in history.symptoms() if (result := assess_symptom(evidence, symptom))]
    evidence = replace(evidence, disconnects=tuple(item.occurrence for item in assessments if item.is_disconnect))
    assessments += [assess(evidence, occurrence) for check in (*JOB_CHECKS, *RANK_CHECKS) for occurrence in check(evidence)]
    assessments = mark_suspect(evidence, assessments)
    errors = [item for item in assessments if item.is_error]
    agents = frozenset(name for name, pod in history.pods.items() if pod.launch or pod.joined)
    issues = group_assessments(assessments, Commands(job, source, view.local, view.running, agents, view.config.installer))
    first = None
    if errors:
        best = min(errors, key=lambda item: (item.role.rank, item.sort_key))
        best = min(_find_exceptions_before(evidence, errors, best), key=lambda item: item.sort_key, default=best)
        first = next(issue for issue, members in issues if best in members)
    categories: dict[str, list[Issue]] = defaultdict(list)
    for issue, _ in issues:
        if issue is not first:
            categories[_categorize(issue, first)].append(issue)
    reports = () if first else find_reports(evidence)
    verdict = find_verdict(evidence, has_error=first is not None, has_report=bool(reports))
    return Diagnosis(
        headline=view.describe_end_of_logs(has_error=first is not None) if view.is_end_unknown else view.headline,
        verdict=verdict,
        remark=view.remark,
        lines=collector.lines,
        pods=len(view.pods),
        first_cause=_name_role(first),
        reports=reports,
        last_lines=() if first else quote_ends(evidence),
        losses=tuple((name, pod.state.loss) for name, pod in view.pods.items() if pod.state and pod.state.loss),
        silence=find_silence(view, read_rank_lines(evidence)),
        **{name: tuple(members) for name, members in categories.items()},
    )


def _name_role(first: Issue | None) -> Issue | None:
    """Return the first cause with the role that it has in this job: without a better one, a consequence is a suspect."""
    return replace(first, role=Role.SUSPECT) if first and first.role is Role.CONSEQUENCE else first


def _find_exceptions_before(job: JobEvidence, errors: Collection[Assessment], best: Assessment) -> Iterator[Assessment]:
    """Yield the exceptions of the program in the rounds before that of `best`: what ended the first round comes first."""
    near = job.view.reference_time
    starts = [timestamp.resolve(near) for pod in job.history.pods.values() for _, timestamp in pod.starts]
    for item in errors:
        if item.occurrence.rule.subject is not Subject.EXCEPTION or item.time is None or best.time is None:
            continue
        if any(start is not None and item.time < start <= best.time for start in starts):
            yield item


def _categorize(issue: Issue, first: Issue | None) -> str:
    """Return the field of `Diagnosis` that the issue belongs to."""
    if issue.severity is Severity.HARMLESS:
        return "harmless"
    if issue.recovered:
        return "recovered"
    if issue.severity is Severity.WARNING:
        return "warnings"
    is_explained = first is not None and issue.role.rank > first.role.rank
    return "consequences" if is_explained or issue.role in {Role.CONSEQUENCE, Role.SYMPTOM} else "other_causes"


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
    _, line, text = pod.activity.success or (0, 0, "")
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
