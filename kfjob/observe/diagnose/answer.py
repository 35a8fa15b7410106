"""From symptoms to the answer: which of them still hold, which explains the others, and which means nothing."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct
from msgspec.structs import replace

from kfjob.events import JobPhase, PodPhase
from kfjob.observe.diagnose.conditions import CONDITIONS, Case
from kfjob.observe.diagnose.diagnosis import Diagnosis, Finding
from kfjob.observe.diagnose.rule import NOT_SAID, Role, Rule, Severity, Subject
from kfjob.observe.diagnose.sightings import Sighting
from kfjob.observe.diagnose.symptoms import Symptoms
from kfjob.observe.lines import SECOND
from kfjob.observe.view import JobView

WENT_ON = 60 * SECOND
"""Progress so long after a fault means that it was overcome: no collective waits for a lost rank and goes on."""
EVIDENCE = 6
"""Lines quoted for a finding."""

_TELLING = {role: index for index, role in enumerate(Role)}


class _Judged(Struct, frozen=True):
    """A sighting, and what it means in this job."""

    sighting: Sighting
    severity: Severity
    role: Role
    recovered: bool
    time: int | None
    count: int = 1

    @property
    def key(self) -> tuple[int, int]:
        """By time; what has none comes last."""
        return (self.time if self.time is not None else 2**63, self.sighting.order)


def diagnose(symptoms: Symptoms, view: JobView, *, job: str) -> Diagnosis:
    """The answer, as far as the events tell it."""
    case = Case(view, symptoms)
    judged = [one for track in symptoms.tracks() if (one := _judge_all(case, track.sightings, track.count))]
    case = replace(case, lost=tuple(one.sighting for one in judged if _is_loss(one)))
    judged += [_judge(case, sighting) for condition in CONDITIONS for sighting in condition(case)]
    errors = [one for one in judged if one.severity is Severity.ERROR and not one.recovered]
    findings = _grouped(judged, job)
    first = None
    if errors:
        best = min(errors, key=lambda one: (_TELLING[one.role], one.key))
        first = next(finding for finding, members in findings if best in members)
    kinds: dict[str, list[Finding]] = defaultdict(list)
    for finding, _ in findings:
        if finding is not first:
            kinds[_kind(finding, first)].append(finding)
    return Diagnosis(
        headline=view.headline,
        failed=view.phase is JobPhase.FAILED or first is not None,
        lines=symptoms.lines,
        pods=len(view.pods),
        first=first,
        **{name: tuple(found) for name, found in kinds.items()},
    )


def _time(case: Case, sighting: Sighting) -> int | None:
    """When it happened; nobody tells when a container ended, but its log ends about then, and the report comes later."""
    near = case.view.dated
    time = sighting.moment.resolve(near)
    pod = case.symptoms.pods.get(sighting.pod)
    if pod and sighting.rule.subject is Subject.POD and not sighting.waiting:
        end = pod.clock.now().resolve(near)
        return min(time, end) if time is not None and end is not None else time
    return time


def _is_loss(one: _Judged) -> bool:
    holds = one.severity is Severity.ERROR and not one.recovered
    return holds and one.role is Role.CONSEQUENCE and one.sighting.joined and one.sighting.line is not None


def _kind(finding: Finding, first: Finding | None) -> str:
    if finding.severity is Severity.HARMLESS:
        return "harmless"
    if finding.recovered:
        return "recovered"
    if finding.severity is Severity.WARNING:
        return "warnings"
    explained = first is not None and _TELLING[finding.role] > _TELLING[first.role]
    return "followed" if explained or finding.role in {Role.CONSEQUENCE, Role.SYMPTOM} else "others"


def _judge_all(case: Case, sightings: list[Sighting], count: int) -> _Judged | None:
    """The first sighting that still holds, else the last one."""
    judged = [_judge(case, sighting, count) for sighting in sightings if not sighting.over]
    holding = [one for one in judged if not one.recovered]
    return holding[0] if holding else judged[-1] if judged else None


def _judge(case: Case, sighting: Sighting, count: int = 1) -> _Judged:
    rule = sighting.rule
    time = _time(case, sighting)
    role = rule.once_joined if rule.once_joined and sighting.joined else rule.role
    severity = rule.severity
    recovered = severity is Severity.ERROR and not rule.lasting and _overcome(case, sighting, time)
    if severity is Severity.ERROR and rule.until_joined and not sighting.joined:
        severity = _while_starting(case, sighting, recovered=recovered)
    elif (role is Role.CONSEQUENCE and _after_the_end(case, sighting)) or (
        role is not Role.CAUSE and _by_a_stop(case, sighting)
    ):
        severity = Severity.HARMLESS
    return _Judged(sighting, severity, role, recovered, time, count)


def _after_the_end(case: Case, sighting: Sighting) -> bool:
    """Whether the pod's own work was done by then: peers may leave in any order."""
    pod = case.symptoms.pods.get(sighting.pod)
    return pod is not None and pod.finished is not None and sighting.order > pod.finished


def _by_a_stop(case: Case, sighting: Sighting) -> bool:
    """Whether the container ended because somebody stopped the job."""
    return case.view.phase is JobPhase.STOPPED and sighting.rule.subject is Subject.POD


def _while_starting(case: Case, sighting: Sighting, *, recovered: bool) -> Severity:
    """What a connection that failed means, when the agent had not met the others yet: it tries again."""
    pod = case.symptoms.pods[sighting.pod]
    later = [order for order, _ in pod.begins if order > sighting.order]
    if later or pod.finished or recovered or (pod.progress and pod.progress[0] > sighting.order):
        return Severity.HARMLESS
    state = pod.state
    gave_up = any(
        other.order > sighting.order and track.rule.severity is Severity.ERROR and not track.rule.until_joined
        for track in pod.tracks.values()
        for other in track.sightings
    )
    if gave_up or (state and (state.phase is PodPhase.FAILED or state.restarts or state.exit_code)):
        return Severity.ERROR
    return Severity.WARNING if case.view.running and not case.view.training.lines else Severity.HARMLESS


def _overcome(case: Case, sighting: Sighting, time: int | None) -> bool:
    """Whether the job went on after it: a round that trained, a long time of progress, or a good end."""
    if case.view.phase is JobPhase.SUCCEEDED:
        return True
    pod = case.symptoms.pods.get(sighting.pod)
    of_state = sighting.rule.subject is Subject.POD  # which may be told before the log that led to it
    if pod and pod.finished is not None and (of_state or pod.finished > sighting.order):
        return True
    if pod and pod.progress and not of_state and any(sighting.order < order < pod.progress[0] for order, _ in pod.begins):
        return True
    near = case.view.dated
    newest = [moment.resolve(near) for one in case.symptoms.pods.values() if one.progress for moment in [one.progress[1]]]
    progress = max((at for at in newest if at is not None), default=None)
    if not sighting.moment.exact:
        time = sighting.until.resolve(near) if sighting.until else None
    if time is None or progress is None:
        return False
    begins = (moment.resolve(near) for one in case.symptoms.pods.values() for _, moment in one.begins)
    return progress - time > WENT_ON or any(at is not None and time < at <= progress for at in begins)


class _Values(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return NOT_SAID


def _texts(rule: Rule, sighting: Sighting, job: str) -> tuple[str, str, str]:
    values = _Values({"job": job, "pod": sighting.pod, **sighting.values})
    title, cause, remedy = (text.format_map(values) for text in (rule.title, rule.cause, rule.remedy))
    return title, cause, remedy


def _grouped(judged: list[_Judged], job: str) -> list[tuple[Finding, list[_Judged]]]:
    """One finding for what is the same fault in several pods, told by where it was seen first."""
    groups: dict[tuple[str, str, Severity, Role, bool], list[_Judged]] = defaultdict(list)
    for one in judged:
        title, _, _ = _texts(one.sighting.rule, one.sighting, job)
        groups[one.sighting.rule.id, title, one.severity, one.role, one.recovered].append(one)
    found = []
    for members in groups.values():
        members.sort(key=lambda one: one.key)
        found.append((_finding(members, job), members))
    return sorted(found, key=lambda at: at[1][0].key)


def _finding(members: list[_Judged], job: str) -> Finding:
    first = members[0]
    sighting, rule = first.sighting, first.sighting.rule
    title, cause, remedy = _texts(rule, sighting, job)
    return Finding(
        rule=rule.id,
        severity=first.severity,
        role=first.role,
        title=title,
        cause=cause,
        remedy=remedy,
        link=rule.link,
        pod=sighting.pod,
        line=sighting.line,
        time=first.time,
        rank=sighting.rank,
        previous=sighting.previous,
        evidence=sighting.evidence[-EVIDENCE:],
        count=sum(one.count for one in members),
        pods=tuple(dict.fromkeys(one.sighting.pod for one in members if one.sighting.pod)),
        recovered=first.recovered,
    )
