"""From symptoms to the answer: which of them still hold, which explains the others, and which means nothing."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct
from msgspec.structs import replace

from kfjob.events import JobPhase, PodPhase
from kfjob.observe.diagnose.checks import CONDITIONS, Case
from kfjob.observe.diagnose.diagnosis import Diagnosis, Issue
from kfjob.observe.diagnose.occurrences import Occurrence
from kfjob.observe.diagnose.rule import UNKNOWN_VALUE, Role, Rule, Severity, Subject
from kfjob.observe.diagnose.symptoms import SymptomCollector
from kfjob.observe.view import JobView
from kfjob.units import SECOND

WENT_ON = 60 * SECOND
"""Progress so long after a fault means that it was overcome: no collective waits for a lost rank and goes on."""
EVIDENCE = 6
"""Lines quoted for a finding."""

_TELLING = {role: index for index, role in enumerate(Role)}


class _Judged(Struct, frozen=True):
    """A occurrence, and what it means in this job."""

    occurrence: Occurrence
    severity: Severity
    role: Role
    recovered: bool
    time: int | None
    count: int = 1

    @property
    def key(self) -> tuple[int, int]:
        """By time; what has none comes last."""
        return (self.time if self.time is not None else 2**63, self.occurrence.order)


def diagnose(symptoms: SymptomCollector, view: JobView, *, job: str) -> Diagnosis:
    """The answer, as far as the events tell it."""
    case = Case(view, symptoms)
    judged = [one for symptom in symptoms.symptoms() if (one := _judge_all(case, symptom.occurrences, symptom.count))]
    case = replace(case, lost=tuple(one.occurrence for one in judged if _is_loss(one)))
    judged += [_judge(case, occurrence) for condition in CONDITIONS for occurrence in condition(case)]
    errors = [one for one in judged if one.severity is Severity.ERROR and not one.recovered]
    findings = _grouped(judged, job)
    first = None
    if errors:
        best = min(errors, key=lambda one: (_TELLING[one.role], one.key))
        first = next(finding for finding, members in findings if best in members)
    kinds: dict[str, list[Issue]] = defaultdict(list)
    for finding, _ in findings:
        if finding is not first:
            kinds[_kind(finding, first)].append(finding)
    return Diagnosis(
        headline=view.headline,
        failed=view.phase is JobPhase.FAILED or first is not None,
        lines=symptoms.lines,
        pods=len(view.pods),
        first_cause=first,
        **{name: tuple(found) for name, found in kinds.items()},
    )


def _time(case: Case, occurrence: Occurrence) -> int | None:
    """When it happened; nobody tells when a container ended, but its log ends about then, and the report comes later."""
    near = case.view.reference_time
    time = occurrence.moment.resolve(near)
    pod = case.symptoms.pods.get(occurrence.pod)
    if pod and occurrence.rule.subject is Subject.POD and not occurrence.waiting:
        end = pod.recent.timestamp().resolve(near)
        return min(time, end) if time is not None and end is not None else time
    return time


def _is_loss(one: _Judged) -> bool:
    holds = one.severity is Severity.ERROR and not one.recovered
    return holds and one.role is Role.CONSEQUENCE and one.occurrence.joined and one.occurrence.line is not None


def _kind(finding: Issue, first: Issue | None) -> str:
    if finding.severity is Severity.HARMLESS:
        return "harmless"
    if finding.recovered:
        return "recovered"
    if finding.severity is Severity.WARNING:
        return "warnings"
    explained = first is not None and _TELLING[finding.role] > _TELLING[first.role]
    return "consequences" if explained or finding.role in {Role.CONSEQUENCE, Role.SYMPTOM} else "other_causes"


def _judge_all(case: Case, occurrences: list[Occurrence], count: int) -> _Judged | None:
    """The first occurrence that still holds, else the last one."""
    judged = [_judge(case, occurrence, count) for occurrence in occurrences if not occurrence.over]
    holding = [one for one in judged if not one.recovered]
    return holding[0] if holding else judged[-1] if judged else None


def _judge(case: Case, occurrence: Occurrence, count: int = 1) -> _Judged:
    rule = occurrence.rule
    time = _time(case, occurrence)
    role = rule.once_joined if rule.once_joined and occurrence.joined else rule.role
    severity = rule.severity
    recovered = severity is Severity.ERROR and not rule.lasting and _overcome(case, occurrence, time)
    if severity is Severity.ERROR and rule.until_joined and not occurrence.joined:
        severity = _while_starting(case, occurrence, recovered=recovered)
    elif (role is Role.CONSEQUENCE and _after_the_end(case, occurrence)) or (
        role is not Role.CAUSE and _by_a_stop(case, occurrence)
    ):
        severity = Severity.HARMLESS
    return _Judged(occurrence, severity, role, recovered, time, count)


def _after_the_end(case: Case, occurrence: Occurrence) -> bool:
    """Whether the pod's own work was done by then: peers may leave in any order."""
    pod = case.symptoms.pods.get(occurrence.pod)
    return pod is not None and pod.finished is not None and occurrence.order > pod.finished


def _by_a_stop(case: Case, occurrence: Occurrence) -> bool:
    """Whether the container ended because somebody stopped the job."""
    return case.view.phase is JobPhase.STOPPED and occurrence.rule.subject is Subject.POD


def _while_starting(case: Case, occurrence: Occurrence, *, recovered: bool) -> Severity:
    """What a connection that failed means, when the agent had not met the others yet: it tries again."""
    pod = case.symptoms.pods[occurrence.pod]
    later = [order for order, _ in pod.begins if order > occurrence.order]
    if later or pod.finished or recovered or (pod.progress and pod.progress[0] > occurrence.order):
        return Severity.HARMLESS
    state = pod.state
    gave_up = any(
        other.order > occurrence.order and symptom.rule.severity is Severity.ERROR and not symptom.rule.until_joined
        for symptom in pod.symptoms.values()
        for other in symptom.occurrences
    )
    if gave_up or (state and (state.phase is PodPhase.FAILED or state.restarts or state.exit_code)):
        return Severity.ERROR
    return Severity.WARNING if case.view.running and not case.view.training.lines else Severity.HARMLESS


def _overcome(case: Case, occurrence: Occurrence, time: int | None) -> bool:
    """Whether the job went on after it: a round that trained, a long time of progress, or a good end."""
    if case.view.phase is JobPhase.SUCCEEDED:
        return True
    pod = case.symptoms.pods.get(occurrence.pod)
    of_state = occurrence.rule.subject is Subject.POD  # which may be told before the log that led to it
    if pod and pod.finished is not None and (of_state or pod.finished > occurrence.order):
        return True
    if pod and pod.progress and not of_state and any(occurrence.order < order < pod.progress[0] for order, _ in pod.begins):
        return True
    near = case.view.reference_time
    newest = [moment.resolve(near) for one in case.symptoms.pods.values() if one.progress for moment in [one.progress[1]]]
    progress = max((at for at in newest if at is not None), default=None)
    if not occurrence.moment.exact:
        time = occurrence.until.resolve(near) if occurrence.until else None
    if time is None or progress is None:
        return False
    begins = (moment.resolve(near) for one in case.symptoms.pods.values() for _, moment in one.begins)
    return progress - time > WENT_ON or any(at is not None and time < at <= progress for at in begins)


class _Values(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return UNKNOWN_VALUE


def _texts(rule: Rule, occurrence: Occurrence, job: str) -> tuple[str, str, str]:
    values = _Values({"job": job, "pod": occurrence.pod, **occurrence.values})
    title, cause, remedy = (text.format_map(values) for text in (rule.title, rule.cause, rule.remedy))
    return title, cause, remedy


def _grouped(judged: list[_Judged], job: str) -> list[tuple[Issue, list[_Judged]]]:
    """One finding for what is the same fault in several pods, told by where it was seen first."""
    groups: dict[tuple[str, str, Severity, Role, bool], list[_Judged]] = defaultdict(list)
    for one in judged:
        title, _, _ = _texts(one.occurrence.rule, one.occurrence, job)
        groups[one.occurrence.rule.id, title, one.severity, one.role, one.recovered].append(one)
    found = []
    for members in groups.values():
        members.sort(key=lambda one: one.key)
        found.append((_finding(members, job), members))
    return sorted(found, key=lambda at: at[1][0].key)


def _finding(members: list[_Judged], job: str) -> Issue:
    first = members[0]
    occurrence, rule = first.occurrence, first.occurrence.rule
    title, cause, remedy = _texts(rule, occurrence, job)
    return Issue(
        rule=rule.id,
        severity=first.severity,
        role=first.role,
        title=title,
        cause=cause,
        remedy=remedy,
        link=rule.link,
        pod=occurrence.pod,
        line=occurrence.line,
        time=first.time,
        rank=occurrence.rank,
        previous=occurrence.previous,
        evidence=occurrence.evidence[-EVIDENCE:],
        count=sum(one.count for one in members),
        pods=tuple(dict.fromkeys(one.occurrence.pod for one in members if one.occurrence.pod)),
        recovered=first.recovered,
    )
