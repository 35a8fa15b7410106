"""Checks for ranks that wait for each other, or do not know each other; each belongs to the rule with its name."""

from __future__ import annotations

from collections.abc import Callable

from kfjob.base.patterns import Pattern
from kfjob.joblog.diagnose.absent_ranks import find_absent_ranks
from kfjob.joblog.diagnose.assessments import TIMEOUTS, Assessment, assess_symptom
from kfjob.joblog.diagnose.job_evidence import JobEvidence, Occurrences
from kfjob.joblog.diagnose.occurrences import PodHistory
from kfjob.joblog.diagnose.rank_lines import read_rank_lines
from kfjob.joblog.diagnose.rule import Role, Severity
from kfjob.joblog.diagnose.rules import check_ids
from kfjob.joblog.events import PodPhase
from kfjob.joblog.lines.meanings import is_data_preparation
from kfjob.joblog.master.evidence import describe_ranks
from kfjob.joblog.pods.pod_view import PodView
from kfjob.joblog.progress.figures.bars import FULL, find_bar
from kfjob.redaction import cut_text

MAX_LINE = 120
"""Characters of the last line of a suspect."""

_CONNECTED = Pattern(r"\[c10d\S*.*\] The client socket has connected to ")
_LOST = check_ids("peer-closed", "store-lost")
_FIRST_POD = Pattern(r"-master-0$|-worker-0$")


def slow_preparation(job: JobEvidence) -> Occurrences:
    """A collective timed out while a rank still prepared its data."""
    has_timeout = any((rule, "") in pod.symptoms for pod in job.history.pods.values() for rule in TIMEOUTS)
    if not has_timeout or job.view.training.lines:
        return
    for name, pod in job.history.pods.items():
        if bar := _find_bar(pod):
            what, percent, line = bar
            yield job.occurrence(
                "slow-preparation",
                pod=name,
                timestamp=pod.recent.timestamp(),
                evidence=line,
                what=what,
                percent=percent,
            )
            return


def _find_bar(pod: PodHistory) -> tuple[str, str, str] | None:
    """Return the newest progress bar of a preparation that has not reached its end: its name, percentage and text."""
    for text in pod.recent.texts():
        for part in reversed(text.split("\r")):
            if (bar := find_bar(part)) and is_data_preparation(bar.words):
                return (bar.name, bar.percent, part.strip()) if bar.percent != FULL else None
    return None


def rank_absent(job: JobEvidence) -> Occurrences:
    """Ranks timed out in a collective, and a few others of the same world did not."""
    waited = {rank: item for pod in job.history.pods.values() for rank, item in pod.timeouts.waited.items()}
    named = {rank: item for pod in job.history.pods.values() for rank, item in pod.timeouts.absent.items()}
    absent = find_absent_ranks(job)
    if not absent:
        return
    pod = next((name for name, view in job.view.pods.items() if absent[0] in view.global_ranks), "")
    last = next((line for line in read_rank_lines(job) if line.rank == absent[0]), None)
    proof = named.get(absent[0]) or next(iter(waited.values()))
    occurrence = job.occurrence(
        "rank-absent",
        pod=pod,
        absent=describe_ranks(absent).removeprefix("global "),
        waited=describe_ranks(sorted(waited.keys() - named.keys())).removeprefix("global ") or "the other ranks",
        what=proof.collective or "a collective",
        last=f"; its last line is `{cut_text(last.text, MAX_LINE)}`" if last else "",
    )
    occurrence.evidence = (proof.text.strip(),)
    if timeout := _find_timeout(job):
        occurrence.timestamp, occurrence.lasts = timeout.occurrence.timestamp, not timeout.recovered
    occurrence.rank = absent[0] if len(absent) == 1 else None
    yield occurrence


def _find_timeout(job: JobEvidence) -> Assessment | None:
    """Return the first timeout of a collective that the job has not recovered from, else the last one."""
    symptoms = (pod.symptoms.get((rule, "")) for pod in job.history.pods.values() for rule in TIMEOUTS)
    timeouts = [found for symptom in symptoms if symptom and (found := assess_symptom(job, symptom))]
    lasting = [item for item in timeouts if not item.recovered]
    return min(lasting, key=_get_time) if lasting else max(timeouts, key=_get_time, default=None)


def _get_time(item: Assessment) -> int:
    return item.time or 0


def connect_hang(job: JobEvidence) -> Occurrences:
    """The log of a pod ends right after its first connections."""
    if job.view.training.lines or not (job.view.phase and job.view.phase.ended):
        return
    for name, pod in job.history.pods.items():
        if _CONNECTED.search(pod.recent.last_text) and not pod.joined and not _has_error(pod):
            yield job.occurrence("connect-hang", pod=name, timestamp=pod.recent.timestamp(), evidence=pod.recent.last_text)


def rank0_gone(job: JobEvidence) -> Occurrences:
    """The log of the first pod, which has no agent, ends without an error, and others lost their connection."""
    pods = job.history.pods
    if job.view.running or any(pod.launch or pod.joined for pod in pods.values()):
        return
    for name, pod in pods.items():
        others = [other for other_name, other in pods.items() if other_name != name]
        lost = [other.symptoms[rule, ""].occurrences[0] for other in others for rule in _LOST if (rule, "") in other.symptoms]
        if _FIRST_POD.search(name) and pod.lines and lost and _may_have_succeeded(pod) and not _has_error(pod):
            last = pod.recent.last_text
            occurrence = job.occurrence("rank0-gone", pod=name, timestamp=pod.recent.timestamp(), evidence=last)
            occurrence.evidence = (last, *lost[0].evidence[-1:])
            yield occurrence


def _may_have_succeeded(pod: PodHistory) -> bool:
    """Return whether nothing shows that the container failed."""
    return pod.state is None or pod.state.phase is PodPhase.SUCCEEDED or (not pod.state.exit_code and not pod.state.restarts)


def _has_error(pod: PodHistory) -> bool:
    return any(
        symptom.rule.severity is Severity.ERROR and symptom.rule.role is not Role.SYMPTOM for symptom in pod.symptoms.values()
    )


def independent_trainings(job: JobEvidence) -> Occurrences:
    """Every pod of a job with several nodes has a process group of its own."""
    pods = [pod for pod in job.view.pods.values() if pod.log.result is not None]
    nodes = max(len(job.view.config.workers), len(job.view.pods))
    if nodes <= 1:
        return
    first = _find_lonely_agent(pods) if pods else _find_lonely_world(job) or _find_unconnected(job)
    if first:
        name, evidence = first
        count = len(pods or job.history.pods)
        yield job.occurrence("independent-trainings", pod=name, evidence=evidence, count=count, nodes=nodes)


def _find_lonely_agent(pods: list[PodView]) -> tuple[str, str] | None:
    """Return the first pod and its line if the agents of all pods met nobody."""
    if len(pods) == 1 or not all(_is_alone(pod) for pod in pods):
        return None
    return pods[0].name, pods[0].log.result.quote if pods[0].log.result else ""


def _find_unconnected(job: JobEvidence) -> tuple[str, str] | None:
    """Return the second pod that trains and its line if all pods train, and nothing connects them."""
    pods = job.history.pods
    lines = [(name, line.text.strip()) for name, pod in pods.items() if (line := pod.evidence[1]) and pod.world.size <= 1]
    return lines[1] if job.view.config.unconnected and 1 < len(lines) == len(pods) else None


def _find_lonely_world(job: JobEvidence) -> tuple[str, str] | None:
    """Return the first pod and its line if the programs of all pods say that each has a world of its own."""
    pods = list(job.history.pods.items())
    sizes = {pod.world.size for _, pod in pods}
    is_alone = sizes == {1} or (len(sizes) == 1 and 0 not in sizes and all(pod.world.has_rank0 for _, pod in pods))
    return (pods[0][0], pods[0][1].world.evidence.strip()) if len(pods) > 1 and is_alone else None


def _is_alone(pod: PodView) -> bool:
    """Return whether the newest round of the pod has one node."""
    result = pod.log.result
    return result is not None and result.group_world_size == 1 and (result.restart_count or 0) == 0


WAITING_CHECKS: tuple[Callable[[JobEvidence], Occurrences], ...] = (
    slow_preparation,
    rank_absent,
    connect_hang,
    rank0_gone,
    independent_trainings,
)
