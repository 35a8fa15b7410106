"""Diagnosis of a job from its symptoms: the first cause, its consequences, and what is overcome or harmless."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from kfjob.joblog.diagnose.diagnosis import Diagnosis, Issue
from kfjob.joblog.diagnose.engine.assessment import Assessment, assess, assess_symptom
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.endings import find_reports, find_verdict, quote_ends
from kfjob.joblog.diagnose.engine.issues import Commands, group_assessments
from kfjob.joblog.diagnose.engine.job_checks import CHECKS
from kfjob.joblog.diagnose.engine.job_evidence import JobEvidence
from kfjob.joblog.diagnose.engine.rank_checks import WAITING_CHECKS
from kfjob.joblog.diagnose.engine.rank_lines import read_rank_lines
from kfjob.joblog.diagnose.engine.suspects import suspect_survived
from kfjob.joblog.diagnose.log_source import LogSource
from kfjob.joblog.diagnose.rule import Role, Severity, Subject
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.silence import find_silence


def diagnose(collector: SymptomCollector, view: JobView, *, job: str, source: LogSource = LogSource.JOB) -> Diagnosis:
    """Return the diagnosis of job `job` from the events so far."""
    history = collector.history
    if view.reference_time is None:
        view = replace(view, reference_time=history.find_newest_time())
    evidence = JobEvidence(view, history)
    assessments = [result for symptom in history.symptoms() if (result := assess_symptom(evidence, symptom))]
    evidence = replace(evidence, disconnects=tuple(item.occurrence for item in assessments if item.is_disconnect))
    assessments += [assess(evidence, occurrence) for check in (*CHECKS, *WAITING_CHECKS) for occurrence in check(evidence)]
    assessments = suspect_survived(evidence, assessments)
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
