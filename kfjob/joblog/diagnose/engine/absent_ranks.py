"""The ranks that reported no timeout of a collective while most others did."""

from __future__ import annotations

from collections.abc import Collection

from kfjob.joblog.diagnose.engine.job_evidence import JobEvidence
from kfjob.joblog.diagnose.engine.rank_lines import read_rank_lines
from kfjob.joblog.diagnose.rule import Role, Severity

MIN_WAITING = 2
"""Ranks that timed out before a smaller number of ranks that did not are suspects, wherever these have printed anything."""


def find_absent_ranks(job: JobEvidence) -> list[int]:
    """Return the ranks that other ranks waited for in a collective, and that reported neither a timeout nor an error."""
    timeouts = [pod.timeouts for pod in job.history.pods.values()]
    waited = {rank: item for found in timeouts for rank, item in found.waited.items()}
    if len({item.collective for item in waited.values() if item.collective}) > 1:
        return []  # the ranks took different paths, so absence says nothing
    if len(waited) < sum(len(found.waited) for found in timeouts):
        return []  # two pods name the same rank, so the numbers are not those of the whole job
    absent = sorted({rank for found in timeouts for rank in found.absent}) or _count_absent(job, waited.keys())
    return absent if absent and _are_unexplained(job, absent) else []


def _count_absent(job: JobEvidence, waited: Collection[int]) -> list[int]:
    """Return the ranks that did not time out, if they are fewer than those that did; else those of them that stand out.

    Ranks count from 0 without a gap. Torchrun ends the ranks that waited a moment longer than the first one that timed out, so
    of many ranks without a timeout only those stand out that reported fewer steps. A rank without any line, such as that of a
    pod whose log was not saved, never stands out.
    """
    if not waited:
        return []
    lines = [line for line in read_rank_lines(job) if line.rank is not None]
    seen = {line.rank for line in lines if line.rank is not None}
    size = _find_world_size(job)
    absent = sorted(set(range(max(size, *(rank + 1 for rank in (*waited, *seen))))) - set(waited))
    if len(waited) >= MIN_WAITING and len(absent) < len(waited):
        return absent
    seen |= {rank for pod in job.history.pods.values() if pod.lines for rank in pod.ranks}
    if not size or not seen.issuperset(absent):
        return []
    if len(absent) == 1:
        return absent
    newest = max((line.step for line in lines if line.step is not None), default=0)
    behind = {line.rank for line in lines if line.step is not None and line.step < newest}
    return [rank for rank in absent if rank in behind]


def _find_world_size(job: JobEvidence) -> int:
    """Return the largest world size in the logs; 0 if they show none."""
    results = [pod.log.result for pod in job.view.pods.values() if pod.log.result]
    sizes = [size for result in results for size in result.global_world_sizes]
    return max((*sizes, *(pod.world.size for pod in job.history.pods.values())), default=0)


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
