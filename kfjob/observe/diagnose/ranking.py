"""Diagnosis of a job from its symptoms: the first cause, its consequences, and what is overcome or harmless."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from kfjob.events import JobPhase, PodPhase
from kfjob.observe.diagnose.checks import CHECKS, JobEvidence
from kfjob.observe.diagnose.diagnosis import Diagnosis, Issue
from kfjob.observe.diagnose.occurrences import MAX_CONTEXT_QUOTE, Occurrence, PodHistory, Symptom
from kfjob.observe.diagnose.rule import UNKNOWN_VALUE, Role, Severity, Subject
from kfjob.observe.diagnose.symptoms import SymptomCollector
from kfjob.observe.diagnose.waiting import WAITING_CHECKS
from kfjob.observe.view import JobView
from kfjob.redaction import cut_text
from kfjob.units import SECOND

RECOVERY_READINGS = 3
"""Progress lines of a pod after an error that mean the same in a log without times."""
RECOVERY_TIME = 60 * SECOND
"""Progress this long after an error means that the job recovered: no collective continues without a lost rank."""

LAST_LINES = 3
"""Lines at the end of a pod's log that are quoted where no error explains the end."""
MAX_LAST_PODS = 3
"""Pods whose last lines are quoted."""

_ABORTS = frozenset({"worker-aborted", "native-crash"})
_ENDS = _ABORTS | {"worker-failed", "child-failed", "launcher-failed"}
"""Rules about the end of a process: a suspect if nothing else in its pod tells why it ended."""

_KILLS = frozenset({"pod-killed", "pod-terminated"})
"""Rules about containers that something else ended."""

_ROLE_RANK = {role: index for index, role in enumerate(Role)}


class _Assessment(Struct, frozen=True):
    """An occurrence with its meaning in this job."""

    occurrence: Occurrence
    severity: Severity
    role: Role
    recovered: bool
    time: int | None
    count: int = 1

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


def diagnose(collector: SymptomCollector, view: JobView, *, job: str) -> Diagnosis:
    """Return the diagnosis of job `job` from the events so far."""
    history = collector.history
    evidence = JobEvidence(view, history)
    assessments = [result for symptom in history.symptoms() if (result := _assess_symptom(evidence, symptom))]
    evidence = replace(evidence, disconnects=tuple(item.occurrence for item in assessments if item.is_disconnect))
    assessments += [_assess(evidence, occurrence) for check in (*CHECKS, *WAITING_CHECKS) for occurrence in check(evidence)]
    errors = [item for item in assessments if item.is_error]
    agents = frozenset(name for name, pod in history.pods.items() if pod.launch or pod.joined)
    issues = _group(assessments, job, local=view.local, agents=agents)
    first = None
    if errors:
        best = min(errors, key=lambda item: (_ROLE_RANK[item.role], item.sort_key))
        best = min(_find_exceptions_before(evidence, errors, best), key=lambda item: item.sort_key, default=best)
        first = next(issue for issue, members in issues if best in members)
    categories: dict[str, list[Issue]] = defaultdict(list)
    for issue, _ in issues:
        if issue is not first:
            categories[_categorize(issue, first)].append(issue)
    return Diagnosis(
        headline=view.headline,
        failed=view.phase is JobPhase.FAILED or first is not None,
        lines=collector.lines,
        pods=len(view.pods),
        first_cause=first,
        succeeded=_has_succeeded(evidence),
        last_lines=() if first else _quote_ends(evidence),
        **{name: tuple(members) for name, members in categories.items()},
    )


def _has_succeeded(job: JobEvidence) -> bool:
    """Return whether success was seen, or the job is at work."""
    if job.view.phase is JobPhase.SUCCEEDED or (job.view.phase is not None and not job.view.phase.ended):
        return True
    pods = list(job.history.pods.values())
    if job.view.phase is not JobPhase.FAILED and job.view.training.lines:
        return True
    return bool(pods) and all(_ended_well(pod) for pod in pods)


def _ended_well(pod: PodHistory) -> bool:
    return pod.finished is not None or (pod.state is not None and pod.state.phase is PodPhase.SUCCEEDED)


def _quote_ends(job: JobEvidence) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the last lines of the pods that did not report success."""
    pods = [(name, pod) for name, pod in job.history.pods.items() if not _ended_well(pod)]
    ends = (
        (name, tuple(cut_text(text, MAX_CONTEXT_QUOTE) for text in pod.recent.last_texts(LAST_LINES))) for name, pod in pods
    )
    return tuple((name, texts) for name, texts in ends if texts)[:MAX_LAST_PODS]


def _find_exceptions_before(job: JobEvidence, errors: Collection[_Assessment], best: _Assessment) -> Iterator[_Assessment]:
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
    is_explained = first is not None and _ROLE_RANK[issue.role] > _ROLE_RANK[first.role]
    return "consequences" if is_explained or issue.role in {Role.CONSEQUENCE, Role.SYMPTOM} else "other_causes"


def _assess_symptom(job: JobEvidence, symptom: Symptom) -> _Assessment | None:
    """Return the first occurrence that the job has not recovered from, else the last one."""
    assessments = [_assess(job, occurrence, symptom.count) for occurrence in symptom.occurrences if not occurrence.resolved]
    unrecovered = [item for item in assessments if not item.recovered]
    return unrecovered[0] if unrecovered else assessments[-1] if assessments else None


def _assess(job: JobEvidence, occurrence: Occurrence, count: int = 1) -> _Assessment:
    rule = occurrence.rule
    time = _find_time(job, occurrence)
    role = _find_role(job, occurrence)
    severity = rule.severity
    if severity is Severity.ERROR and occurrence.in_warning and not (rule.permanent or rule.in_warnings):
        severity = Severity.WARNING  # the program goes on after it
    recovered = severity is Severity.ERROR and not rule.permanent and _has_recovered(job, occurrence, time)
    if severity is Severity.ERROR and rule.harmless_before_join and not occurrence.after_join:
        severity = _assess_before_join(job, occurrence, recovered=recovered)
    elif (role is Role.CONSEQUENCE and _is_after_success(job, occurrence)) or (
        role is not Role.CAUSE and _is_caused_by_stop(job, occurrence)
    ):
        severity, recovered = Severity.HARMLESS, False
    return _Assessment(occurrence, severity, role, recovered, time, count)


def _find_role(job: JobEvidence, occurrence: Occurrence) -> Role:
    """Return how well the occurrence explains the failure, given the others of its pod."""
    rule = occurrence.rule
    if rule.role_after_join and occurrence.after_join:
        return rule.role_after_join
    pod = job.history.pods.get(occurrence.pod)
    if rule.id in _ENDS and pod is not None:
        is_explained = any(_explains_end(other, occurrence) for other in pod.symptoms.occurrences())
        return Role.SYMPTOM if is_explained else Role.SUSPECT
    return rule.role


def _explains_end(other: Occurrence, end: Occurrence) -> bool:
    """Return whether the other occurrence tells why the process of the same pod ended."""
    if other.rule.id in _ENDS or other.rule.subject is Subject.POD or other.rule.severity is not Severity.ERROR:
        return False
    is_abort = end.rule.id in _ABORTS
    return other.rule.role is not Role.SYMPTOM and (is_abort or other.order <= end.order or other.in_previous_container)


def _find_time(job: JobEvidence, occurrence: Occurrence) -> int | None:
    """Return when it happened. The state of an ended container comes late, so the end of its log is used if earlier."""
    near = job.view.reference_time
    time = occurrence.timestamp.resolve(near)
    pod = job.history.pods.get(occurrence.pod)
    if pod and occurrence.rule.subject is Subject.POD and not occurrence.pod_waits:
        end = pod.recent.timestamp().resolve(near)
        return min(time, end) if time is not None and end is not None else time
    return time


def _is_after_success(job: JobEvidence, occurrence: Occurrence) -> bool:
    """Return whether the pod's agent had reported success before: peers may exit in any order."""
    pod = job.history.pods.get(occurrence.pod)
    return pod is not None and pod.finished is not None and occurrence.order > pod.finished


def _is_caused_by_stop(job: JobEvidence, occurrence: Occurrence) -> bool:
    """Return whether the container ended because the job was stopped, or had succeeded: kfjob ends what still runs then."""
    if occurrence.rule.subject is not Subject.POD:
        return False
    pod = job.history.pods.get(occurrence.pod)
    is_end = occurrence.rule.id in _KILLS and (pod is None or all(order < occurrence.order for order, _ in pod.starts))
    return job.view.phase is JobPhase.STOPPED or (job.view.phase is JobPhase.SUCCEEDED and is_end)


def _assess_before_join(job: JobEvidence, occurrence: Occurrence, *, recovered: bool) -> Severity:
    """Return the severity of a failed connection of an agent that had not joined a round: the agent retries."""
    pod = job.history.pods[occurrence.pod]
    has_later_start = any(order > occurrence.order for order, _ in pod.starts)
    if has_later_start or pod.finished or recovered or (pod.progress and pod.progress[0] > occurrence.order):
        return Severity.HARMLESS
    state = pod.state
    gave_up = any(
        other.order > occurrence.order and other.rule.severity is Severity.ERROR and not other.rule.harmless_before_join
        for other in pod.symptoms.occurrences()
    )
    if gave_up or occurrence.in_exception or (state and (state.phase is PodPhase.FAILED or state.restarts or state.exit_code)):
        return Severity.ERROR
    return Severity.HARMLESS if job.view.training.lines else Severity.WARNING


def _has_recovered(job: JobEvidence, occurrence: Occurrence, time: int | None) -> bool:
    """Return whether the job went on: it succeeded, a later round trained, or progress continued for long."""
    if job.view.phase is JobPhase.SUCCEEDED:
        return True
    pod = job.history.pods.get(occurrence.pod)
    if pod and occurrence.mark and not _has_times(job) and pod.readings - occurrence.mark.readings >= RECOVERY_READINGS:
        return True
    is_state = occurrence.rule.subject is Subject.POD  # a state may arrive before the log that led to it
    if pod and pod.finished is not None and (is_state or pod.finished > occurrence.order):
        return True
    if pod and pod.progress and not is_state:
        progress_order = pod.progress[0]
        if any(occurrence.order < order < progress_order for order, _ in pod.starts):
            return True
    if not occurrence.timestamp.exact:
        latest = occurrence.mark.latest if occurrence.mark else occurrence.latest
        time = latest.resolve(job.view.reference_time) if latest else None
    return time is not None and _has_progress_after(job, time)


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


class _Values(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return UNKNOWN_VALUE


def describe(occurrence: Occurrence) -> str:
    """Return the title of the occurrence's rule with its values."""
    return occurrence.rule.title.format_map(_Values(occurrence.values))


def _fill_texts(occurrence: Occurrence, job: str, *, local: bool, agents: Collection[str]) -> tuple[str, str, str]:
    """Return title, cause and remedy of the rule with the values of this occurrence; `agents` are pods with an agent."""
    rule = occurrence.rule
    cause = rule.agent_cause if occurrence.pod in agents and rule.agent_cause else rule.cause
    remedy = rule.local_remedy if local and rule.local_remedy else rule.remedy
    values = _Values({"job": job, "pod": occurrence.pod, **occurrence.values})
    if job.startswith("--from "):
        remedy = _adapt_to_saved_logs(remedy, job)
    return rule.title.format_map(values), cause.format_map(values), remedy.format_map(values)


def _adapt_to_saved_logs(remedy: str, job: str) -> str:
    """Return the remedy for saved logs, which `kfjob relaunch` does not take, and which standard input gives only once."""
    if job == "--from -":
        remedy = "; ".join(part for part in remedy.split("; ") if not re.search(r"`kfjob (?!relaunch)\w+ \{job\}", part))
    return remedy.replace("kfjob relaunch {job}", "kfjob relaunch JOB")


def _group(
    assessments: list[_Assessment], job: str, *, local: bool, agents: Collection[str]
) -> list[tuple[Issue, list[_Assessment]]]:
    """Return the issues by time: the same error in several pods is one issue, located at its first occurrence."""
    groups: dict[tuple[str, str, Severity, Role, bool], list[_Assessment]] = defaultdict(list)
    for item in assessments:
        title, _, _ = _fill_texts(item.occurrence, job, local=local, agents=agents)
        groups[item.occurrence.rule.id, title, item.severity, item.role, item.recovered].append(item)
    issues = []
    for group in groups.values():
        members = sorted(group, key=lambda item: item.sort_key)
        issues.append((_to_issue(members, job, local=local, agents=agents), members))
    return sorted(issues, key=lambda pair: pair[1][0].sort_key)


def _to_issue(members: list[_Assessment], job: str, *, local: bool, agents: Collection[str]) -> Issue:
    first = members[0]
    occurrence = first.occurrence
    title, cause, remedy = _fill_texts(occurrence, job, local=local, agents=agents)
    return Issue(
        rule=occurrence.rule.id,
        severity=first.severity,
        role=first.role,
        title=title,
        cause=cause,
        remedy=remedy,
        link=occurrence.rule.link,
        pod=occurrence.pod,
        line=occurrence.line,
        time=first.time,
        rank=occurrence.rank,
        place=occurrence.place,
        previous=occurrence.in_previous_container,
        evidence=occurrence.evidence,
        context=occurrence.context,
        count=sum(item.count for item in members),
        pods=tuple(dict.fromkeys(item.occurrence.pod for item in members if item.occurrence.pod)),
        recovered=first.recovered,
    )
