"""Ranks that time out in different collectives of one process group took different paths."""

from __future__ import annotations

import pytest

from kfjob.events import JobChanged, JobPhase, LogLine
from kfjob.observe.diagnose.collectives import MAX_RANKS, Collective, Timeout, describe_difference, remember_timeout
from kfjob.observe.diagnose.diagnosis import Diagnosis
from tests.unit.diagnose.cases import examine

OLD, NEW = "[Rank {rank}]", "[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"


def timeout(rank: int, number: int, operation: str = "ALLREDUCE", lead: str = OLD) -> LogLine:
    text = (
        f"[rank{rank}]:[E1120 10:12:52.1 ProcessGroupNCCL.cpp:633] {lead.format(rank=rank)} Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn=1, Timeout(ms)=600000) ran for 600087 "
        "milliseconds before timing out."
    )
    return LogLine(pod=f"a-worker-{rank // 2}", text=text)


def diagnose(*lines: LogLine) -> Diagnosis:
    diagnosis, _ = examine([*lines, JobChanged(phase=JobPhase.FAILED)])
    return diagnosis


@pytest.mark.parametrize("lead", [OLD, NEW])
def test_rank_in_another_collective_is_named(lead: str):
    lines = [timeout(rank, 41, lead=lead) for rank in (0, 1, 3)]
    first = diagnose(*lines, timeout(2, 40, "ALLGATHER", lead)).first_cause
    assert first
    assert (first.rule, first.pod) == ("collectives-apart", "a-worker-1")
    assert first.cause.startswith("global rank 2 in ALLGATHER 40, and global ranks 0-1, 3 in ALLREDUCE 41: ")
    assert "Rank 2]" in first.evidence[-1]


def test_timeout_of_all_ranks_in_one_collective_says_nothing_of_paths():
    first = diagnose(*(timeout(rank, 41) for rank in range(4))).first_cause
    assert first
    assert first.rule == "nccl-timeout"


def test_later_timeout_of_a_rank_does_not_count():
    first = diagnose(*(timeout(rank, 41) for rank in range(4)), timeout(1, 42)).first_cause
    assert first
    assert first.rule == "nccl-timeout"


def test_collectives_of_other_groups_are_not_compared():
    timeouts: dict[int, Timeout] = {}
    remember_timeout(timeouts, timeout(1, 7, lead="[PG ID 3 PG GUID 12(tp) Rank {rank}]").text)
    assert not timeouts


def test_timeouts_of_few_ranks_are_remembered():
    timeouts: dict[int, Timeout] = {}
    for rank in range(2 * MAX_RANKS):
        remember_timeout(timeouts, timeout(rank, 7).text)
    assert len(timeouts) == MAX_RANKS


def test_ranks_that_stayed_behind_differ_from_most():
    collectives = {0: Collective(9, "A"), 1: Collective(9, "A"), 2: Collective(7, "A"), 3: Collective(8, "B")}
    assert describe_difference(collectives) == (
        [2, 3],
        "global rank 2 in A 7, global rank 3 in B 8, and global ranks 0-1 in A 9",
    )
