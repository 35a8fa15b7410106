"""Diagnosis of a job from its symptoms: the first cause, its consequences, and what is overcome or harmless.

The same error in several pods is one issue; the texts of its rule get the values of the log and the commands of the caller. Of
a job without an error, the diagnosis holds how the job ended: the verdict, the programs' own reports of success, and the last
lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.patterns import Pattern
from kfjob.base.text import SIGNAL_BASE
from kfjob.joblog.agents.agent_records import name_signal
from kfjob.joblog.agents.program_lines import condense_lines, find_program_lines
from kfjob.joblog.diagnose.diagnosis import Diagnosis, Issue, Verdict
from kfjob.joblog.diagnose.engine.assessment import ENDS, Assessment, assess, assess_symptom, mark_suspect, subordinate_meetings
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.history import JobEvidence, Occurrence, PodHistory
from kfjob.joblog.diagnose.engine.incidents import is_warning
from kfjob.joblog.diagnose.engine.job_checks import JOB_CHECKS
from kfjob.joblog.diagnose.engine.line_reports import has_full_bar
from kfjob.joblog.diagnose.engine.matching import MAX_CONTEXT_QUOTE
from kfjob.joblog.diagnose.engine.python_packages import find_package
from kfjob.joblog.diagnose.engine.rank_checks import RANK_CHECKS, read_rank_lines
from kfjob.joblog.diagnose.engine.states import POD_ENDS
from kfjob.joblog.diagnose.rule import UNKNOWN_VALUE, LogSource, Role, Severity, Subject
from kfjob.joblog.diagnose.rules import check_ids, exit_codes
from kfjob.joblog.events import JobPhase
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.silence import find_silence
from kfjob.redaction import cut_text

_DELETIONS = POD_ENDS.union(check_ids("pod-deleted"))
_SUSPECTED = "; the program went on after it, but no other error explains the failure"
"""End of the cause of an error that the program survived."""


class Commands(Struct, frozen=True):
    """What the commands in a remedy need to know."""

    job: str  # what names the job on a command line
    source: LogSource = LogSource.JOB
    local: bool = False  # the job runs on the local backend
    installer: str = ""  # what installs packages for a local job; "": unknown


class _Values(dict[str, str]):
    """The values of a rule. A number or an exit code of a signal has its name too."""

    def __missing__(self, key: str) -> str:
        if key != "signal":
            return UNKNOWN_VALUE
        code = self.get("code", "")
        return name_signal(self.get("number") or (str(int(code) - SIGNAL_BASE) if code.isdecimal() else UNKNOWN_VALUE))


def describe(occurrence: Occurrence, *, local: bool = False) -> str:
    """Return the title of the occurrence's rule with its values; `local`: the job runs on the local backend."""
    rule = occurrence.rule
    return (rule.local_title if local and rule.local_title else rule.title).format_map(_Values(occurrence.values))


def _fill_texts(occurrence: Occurrence, commands: Commands) -> tuple[str, str, str]:
    """Return title, cause and remedy of the rule with the values of this occurrence."""
    rule = occurrence.rule
    title = rule.local_title if commands.local and rule.local_title else rule.title
    remedy = rule.local_remedy if commands.local and rule.local_remedy else rule.remedy
    values = _Values({"job": commands.job, "pod": occurrence.pod, **occurrence.values})
    if "name" in values:
        values["package"] = find_package(values["name"])
    if values.get("container"):  # `kfjob logs` has the logs of the containers that train
        remedy = remedy.replace("kfjob logs {job} --pod {pod}", "kubectl logs {pod} -c {container}")
    if commands.local and commands.installer:
        remedy = remedy.replace("`pip install ", f"`{commands.installer.replace('{', '{{').replace('}', '}}')} ")
    if commands.source is not LogSource.JOB:
        remedy = _adapt_to_saved_logs(remedy, commands.source)
    return title.format_map(values), rule.cause.format_map(values), remedy.format_map(values)


def _adapt_to_saved_logs(remedy: str, source: LogSource) -> str:
    """Return the remedy for saved logs, which `kfjob relaunch` does not take, and which standard input gives only once."""
    if source is LogSource.STANDARD_INPUT:
        remedy = "; ".join(part for part in remedy.split("; ") if not re.search(r"`kfjob (?!relaunch)\w+ \{job\}", part))
    return remedy.replace("kfjob relaunch {job}", "kfjob relaunch JOB")


def group_assessments(assessments: list[Assessment], commands: Commands) -> list[tuple[Issue, list[Assessment]]]:
    """Return the issues by time: the same error in several pods is one issue, located at its first occurrence."""
    groups: dict[tuple[str, str, Severity, Role, bool], list[Assessment]] = defaultdict(list)
    for item in assessments:
        title, _, _ = _fill_texts(item.occurrence, commands)
        groups[item.occurrence.rule.id, title, item.severity, item.role, item.recovered].append(item)
    issues = []
    for group in groups.values():
        members = sorted(group, key=lambda item: item.sort_key)
        issues.append((_to_issue(members, commands), members))
    return sorted(issues, key=lambda pair: pair[1][0].sort_key)


def _to_issue(members: list[Assessment], commands: Commands) -> Issue:
    first = members[0]
    occurrence = first.occurrence
    title, cause, remedy = _fill_texts(occurrence, commands)
    if first.recovered and occurrence.rule.recovered_title:
        title = occurrence.rule.recovered_title.format_map(_Values(occurrence.values))
    if first.suspected:
        cause += _SUSPECTED
    elif any(cause.rstrip(".") in text for text in (title, *occurrence.evidence)):
        cause = ""  # the quoted lines say it
    return Issue(
        rule=occurrence.rule.id,
        severity=first.severity,
        role=first.role,
        title=title,
        cause=cause,
        remedy=remedy,
        pod=occurrence.pod,
        line=occurrence.line,
        time=first.time,
        is_dated=occurrence.timestamp.exact,
        rank=occurrence.rank,
        place=occurrence.place,
        previous=occurrence.in_previous_container,
        evidence=occurrence.evidence,
        context=occurrence.context,
        count=sum(item.count for item in members),
        pods=tuple(dict.fromkeys(item.occurrence.pod for item in members if item.occurrence.pod)),
        recovered=first.recovered,
    )


_ENDS = ENDS.union(rule.id for rule in exit_codes.RULES if rule.role is not Role.CAUSE)
"""Rules about how a process ended: after another failure, the end is its effect, or an agent or kfjob ended what was left."""
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
    assessments = subordinate_meetings(mark_suspect(evidence, assessments))
    errors = [item for item in assessments if item.is_error]
    issues = group_assessments(assessments, Commands(job, source, view.local, view.config.installer))
    first = None
    if errors:
        best = min(errors, key=lambda item: (item.role.rank, item.sort_key))
        earlier = min(_find_exceptions_before(evidence, errors, best), key=lambda item: item.sort_key, default=best)
        best = _find_deletion_after(evidence, errors, earlier) or earlier
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


def _find_deletion_after(job: JobEvidence, errors: Collection[Assessment], best: Assessment) -> Assessment | None:
    """Return the deletion of a pod in a round after the error: the job had gone on, until the pod was deleted."""
    deletions = (item for item in errors if item.occurrence.rule.id in _DELETIONS)
    return next((item for item in deletions if _has_start_between(job, best, item)), None)


def _has_start_between(job: JobEvidence, first: Assessment, second: Assessment) -> bool:
    """Return whether a round started between the two errors."""
    near = job.view.reference_time
    starts = [timestamp.resolve(near) for pod in job.history.pods.values() for _, timestamp in pod.starts]
    if first.time is None or second.time is None:
        return False
    return any(start is not None and first.time < start <= second.time for start in starts)


def _find_exceptions_before(job: JobEvidence, errors: Collection[Assessment], best: Assessment) -> Iterator[Assessment]:
    """Yield the exceptions of the program in the rounds before that of `best`: what ended the first round comes first."""
    for item in errors:
        if item.occurrence.rule.subject is Subject.EXCEPTION and _has_start_between(job, item, best):
            yield item


def _categorize(issue: Issue, first: Issue | None) -> str:
    """Return the field of `Diagnosis` that the issue belongs to."""
    if issue.severity is Severity.HARMLESS:
        return "harmless"
    if issue.recovered:
        return "recovered"
    if issue.severity is Severity.WARNING:
        return "warnings"
    is_explained = first is not None and (issue.role.rank > first.role.rank or issue.rule in _ENDS)
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
    success = pod.success
    return success.text if success and pod.lines - success.line <= MAX_LINES_AFTER_REPORT else ""


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
