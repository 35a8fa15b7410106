"""Checks for ranks that wait for each other, lose each other, or do not know each other.

Each check belongs to the rule with its name (`rank_absent`: `rank-absent`). The last lines of the ranks, and the ranks that did
not come to a collective, are below them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from kfjob.base.patterns import Pattern
from kfjob.base.units import SECOND
from kfjob.joblog.agents.agent_log import find_agent_message
from kfjob.joblog.diagnose.engine.assessment import TIMEOUTS, Assessment, assess_symptom
from kfjob.joblog.diagnose.engine.history import JobEvidence, Occurrences, PodHistory
from kfjob.joblog.diagnose.engine.line_reports import MAX_LENGTH, find_count, find_difference, find_rank
from kfjob.joblog.diagnose.rule import Role, Severity
from kfjob.joblog.diagnose.rules import check_ids
from kfjob.joblog.events import PodPhase
from kfjob.joblog.lines.meanings import is_data_preparation
from kfjob.joblog.lines.timestamps import Timestamp
from kfjob.joblog.master.evidence import describe_ranks
from kfjob.joblog.pods.pod_view import PodView
from kfjob.joblog.progress.figures.bars import FULL, find_bar
from kfjob.joblog.view.silence import MAX_TEXT, LastLine
from kfjob.redaction import cut_text

MAX_LINE = 120
"""Characters of the last line of a suspect."""

_CONNECTED = Pattern(r"\[c10d\S*.*\] The client socket has connected to ")
_LOST = check_ids("peer-closed", "store-lost")
_FIRST_POD = Pattern(r"-master-0$|-worker-0$")
ERROR_TIME = 10 * SECOND
"""Time within which the own error of a lost peer may still arrive: logs of pods arrive independently."""
MIN_WAITING = 2
"""Ranks that timed out before a smaller number of ranks that did not are suspects, wherever these have printed anything."""


def collectives_apart(job: JobEvidence) -> Occurrences:
    """The ranks that timed out were in different collectives."""
    timeouts = {rank: (name, item) for name, pod in job.history.pods.items() for rank, item in pod.timeouts.by_rank.items()}
    difference = find_difference({rank: item.collective for rank, (_, item) in timeouts.items() if item.collective})
    if difference is not None:
        ranks, text = difference
        name, timeout = timeouts[ranks[0]]
        symptom = job.history.pods[name].symptoms.get(("nccl-timeout", ""))
        timestamp = symptom.occurrences[0].timestamp if symptom else Timestamp()
        occurrence = job.occurrence("collectives-apart", pod=name, timestamp=timestamp, evidence=timeout.text, difference=text)
        occurrence.line, occurrence.rank = timeout.line, ranks[0] if len(ranks) == 1 else None
        yield occurrence


def left_early(job: JobEvidence) -> Occurrences:
    """A pod succeeded, and others lost their connection or waited for it without an answer."""
    for name, history in job.history.pods.items():
        pod = job.view.pods.get(name)
        if pod and history.has_succeeded and any(item.pod != name for item in job.disconnects):
            timestamp, evidence = history.recent.timestamp(), history.recent.last_text
            rule = "rank0-left-early" if pod.group_rank == 0 else "rank-left-early"
            ranks = describe_ranks(pod.global_ranks) or "its ranks"
            occurrence = job.occurrence(rule, pod=name, timestamp=timestamp, evidence=evidence, ranks=ranks)
            if end := history.end:
                occurrence.timestamp, occurrence.line, occurrence.evidence = end.timestamp, end.line, end.evidence
            yield occurrence


def peer_lost(job: JobEvidence) -> Occurrences:
    """The log of a pod ends without an error when others lose their connection."""
    near = job.view.reference_time
    times = [(not item.timestamp.exact, time) for item in job.disconnects if (time := item.timestamp.resolve(near)) is not None]
    if not times:
        return
    _, first = min(times)  # exact times come first: an inexact one is that of an earlier line
    if job.view.running and job.view.now is not None and job.view.now < first + ERROR_TIME:
        return
    endpoints = {pod.launch.rdzv_endpoint.rpartition(":")[0] for pod in job.history.pods.values() if pod.launch}
    absent = set(find_absent_ranks(job))
    store_hosts = {host.partition(".")[0] for host in endpoints}
    for name, pod in job.history.pods.items():
        end = pod.recent.timestamp().resolve(near)
        is_first = end is not None and end <= first + SECOND and all(item.pod != name for item in job.disconnects)
        is_absent = pod.ranks and absent.issuperset(pod.ranks)  # `rank_absent` says more
        if is_first and not is_absent and _ended_silently(pod) and not (job.view.running and _runs(pod)):
            rule = "store-host-lost" if name in store_hosts else "peer-lost"
            yield job.occurrence(rule, pod=name, timestamp=Timestamp(time=end), evidence=pod.recent.last_text)


def _runs(pod: PodHistory) -> bool:
    return pod.state is not None and pod.state.phase is PodPhase.RUNNING


def _ended_silently(pod: PodHistory) -> bool:
    """Return whether the log of a pod that had joined stops without success and without an error."""
    has_problem = any(symptom.rule.severity is not Severity.HARMLESS for symptom in pod.symptoms.values())
    return pod.joined and not pod.has_succeeded and not has_problem


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
    waited = {rank: item for pod in job.history.pods.values() for rank, item in pod.timeouts.by_rank.items()}
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
    timeouts = [timeout for symptom in symptoms if symptom and (timeout := assess_symptom(job, symptom))]
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
    losses = ((name, pod.symptoms.get((rule, ""))) for name, pod in pods.items() for rule in _LOST)
    lost = {name: symptom.occurrences[0] for name, symptom in losses if symptom}
    for name, pod in pods.items():
        if not (_FIRST_POD.search(name) and pod.lines and _may_have_succeeded(pod)) or _has_error(pod):
            continue
        if other := next((loss for other, loss in lost.items() if other != name), None):
            last = pod.recent.last_text
            occurrence = job.occurrence("rank0-gone", pod=name, timestamp=pod.recent.timestamp(), evidence=last)
            occurrence.evidence = (last, *other.evidence[-1:])
            yield occurrence


def _may_have_succeeded(pod: PodHistory) -> bool:
    """Return whether nothing shows that the container failed."""
    return pod.state is None or pod.state.phase is PodPhase.SUCCEEDED or (not pod.state.exit_code and not pod.state.restarts)


def _has_error(pod: PodHistory) -> bool:
    return any(symptom.rule.explains_end for symptom in pod.symptoms.values())


def independent_trainings(job: JobEvidence) -> Occurrences:
    """Every pod of a job with several nodes has a process group of its own."""
    pods = [pod for pod in job.view.pods.values() if pod.log.result is not None]
    nodes = max(len(job.view.config.workers), len(job.view.pods))
    if nodes <= 1:
        return
    first = _find_lonely_agent(pods) if pods else _find_unconnected(job)
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
    lines = [(name, line.text.strip()) for name, pod in pods.items() if (line := pod.evidence[1])]
    return lines[1] if job.view.config.unconnected and 1 < len(lines) == len(pods) else None


def _is_alone(pod: PodView) -> bool:
    """Return whether the newest round of the pod has one node."""
    result = pod.log.result
    return result is not None and result.group_world_size == 1 and (result.restart_count or 0) == 0


def find_absent_ranks(job: JobEvidence) -> list[int]:
    """Return the ranks that other ranks waited for in a collective, and that reported neither a timeout nor an error."""
    timeouts = [pod.timeouts for pod in job.history.pods.values()]
    waited = {rank: item for pod_timeouts in timeouts for rank, item in pod_timeouts.by_rank.items()}
    if len({item.collective for item in waited.values() if item.collective}) > 1:
        return []  # the ranks took different paths, so absence says nothing
    if len(waited) < sum(len(pod_timeouts.by_rank) for pod_timeouts in timeouts):
        return []  # two pods name the same rank, so the numbers are not those of the whole job
    absent = sorted({rank for pod_timeouts in timeouts for rank in pod_timeouts.absent}) or _count_absent(job, waited.keys())
    return absent if absent and _are_unexplained(job, absent) else []


def _count_absent(job: JobEvidence, waited: Collection[int]) -> list[int]:
    """Return the ranks that did not time out, if they are fewer than those that did, or the only other one.

    Torchrun ends the ranks that waited a moment longer than the first one that timed out. A rank without any line, such as that
    of a pod whose log was not saved, is no suspect for a single rank that waited.
    """
    if not waited:
        return []
    seen = {line.rank for line in read_rank_lines(job) if line.rank is not None}
    size = _find_world_size(job)
    absent = sorted(set(range(max(size, *(rank + 1 for rank in (*waited, *seen))))) - set(waited))
    if len(waited) >= MIN_WAITING and len(absent) < len(waited):
        return absent
    seen |= {rank for pod in job.history.pods.values() if pod.lines for rank in pod.ranks}
    return absent if size and len(absent) == 1 and absent[0] in seen else []


def _find_world_size(job: JobEvidence) -> int:
    """Return the largest world size of a rendezvous; 0 if the logs show none."""
    results = [pod.log.result for pod in job.view.pods.values() if pod.log.result]
    return max((size for result in results for size in result.global_world_sizes), default=0)


def _are_unexplained(job: JobEvidence, ranks: Collection[int]) -> bool:
    """Return whether none of the ranks reported an error of its own, and none ended with success."""
    for pod in job.history.pods.values():
        if pod.has_succeeded and set(ranks) & set(pod.ranks):
            return False
        errors = (item for item in pod.symptoms.occurrences() if item.rule.severity is Severity.ERROR)
        own = (item for item in errors if item.rank in ranks or (item.rank is None and set(pod.ranks) <= set(ranks)))
        if any(item.role in {Role.CAUSE, Role.SUSPECT} for item in own if pod.ranks or item.rank is not None):
            return False
    return True


def read_rank_lines(job: JobEvidence) -> Iterator[LastLine]:
    """Yield the last line of each rank of the live pods; a pod whose lines name no rank has one."""
    for name, history in job.history.pods.items():
        if name in job.view.pods and job.view.pods[name].live:
            lines = list(_read_pod(name, history))
            printed = {line.rank for line in lines}
            silent = [rank for rank in job.view.pods[name].global_ranks if rank not in printed]
            yield from lines
            if not lines:
                yield LastLine(pod=name, rank=silent[0] if len(silent) == 1 else None)
            elif None not in printed:
                yield from (LastLine(pod=name, rank=rank) for rank in silent)


def _read_pod(name: str, history: PodHistory) -> Iterator[LastLine]:
    last: dict[int | None, tuple[int | None, str]] = {}
    steps: dict[int | None, int] = {}
    for time, text in history.recent.dated_texts():
        rank = find_rank(text, history.ranks) if text.strip() else None
        if not text.strip() or (rank in steps and rank in last) or find_agent_message(text) is not None:
            continue
        last.setdefault(rank, (time, text.strip()))
        step = None if "epoch" in text.lower() else find_count(text[-MAX_LENGTH:])  # a step may count within its epoch
        if rank not in steps and step is not None:
            steps[rank] = int(step)
    if history.ranks and last.keys() >= set(history.ranks):
        last.pop(None, None)  # lines of the agent
    for rank, (time, text) in sorted(last.items(), key=lambda item: item[0] or 0):
        yield LastLine(pod=name, rank=rank, step=steps.get(rank), text=cut_text(text, MAX_TEXT), time=time)


RANK_CHECKS: tuple[Callable[[JobEvidence], Occurrences], ...] = (
    collectives_apart,
    left_early,
    peer_lost,
    slow_preparation,
    rank_absent,
    connect_hang,
    rank0_gone,
    independent_trainings,
)
