"""The ranks that reported no timeout of a collective while most others did."""

from __future__ import annotations

from collections.abc import Collection

from kfjob.observe.diagnose.job_evidence import JobEvidence
from kfjob.observe.diagnose.rank_lines import read_rank_lines
from kfjob.observe.diagnose.rule import Role, Severity

MIN_WAITING = 2
"""Ranks that timed out before the ranks that did not are suspects: of two ranks, the other one may have been killed first."""


def find_absent_ranks(job: JobEvidence) -> list[int]:
    """Return the ranks that other ranks waited for in a collective, and that reported neither a timeout nor an error."""
    timeouts = [pod.timeouts for pod in job.history.pods.values()]
    waited = {rank: item for found in timeouts for rank, item in found.waited.items()}
    if len({item.collective for item in waited.values() if item.collective}) > 1:
        return []  # the ranks took different paths, so absence says nothing
    absent = sorted({rank for found in timeouts for rank in found.absent}) or _count_absent(job, waited.keys())
    return absent if absent and _are_unexplained(job, absent) else []


def _count_absent(job: JobEvidence, waited: Collection[int]) -> list[int]:
    """Return the ranks that did not time out, if they are fewer than those that did; ranks count from 0 without a gap."""
    if len(waited) < MIN_WAITING:
        return []
    sizes = [size for pod in job.view.pods.values() if pod.log.result for size in pod.log.result.global_world_sizes]
    sizes += [pod.world.size for pod in job.history.pods.values()]
    seen = [line.rank for line in read_rank_lines(job) if line.rank is not None]
    absent = sorted(set(range(max(*waited, *seen, *(size - 1 for size in sizes), 0) + 1)) - set(waited))
    return absent if len(absent) < len(waited) else []


def _are_unexplained(job: JobEvidence, ranks: Collection[int]) -> bool:
    """Return whether none of the ranks reported an error of its own, and none ended with success."""
    for pod in job.history.pods.values():
        if pod.has_succeeded and set(ranks) & set(pod.ranks):
            return False
        errors = (item for item in pod.symptoms.occurrences() if item.rule.severity is Severity.ERROR)
        if any(item.rank in ranks and item.rule.role in {Role.CAUSE, Role.SUSPECT} for item in errors):
            return False
    return True
