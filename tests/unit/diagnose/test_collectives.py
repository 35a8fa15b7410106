"""Ranks that time out in different collectives of one process group took different paths."""

from __future__ import annotations

import pytest

from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.diagnose.engine.line_reports import MAX_RANKS, Collective, Timeouts, find_difference
from kfjob.joblog.diagnose.rule import Role
from kfjob.joblog.diagnose.rules import BY_ID
from kfjob.joblog.events import JobChanged, JobPhase, LogLine
from tests.unit.diagnose.cases import block, examine, get_cause, line

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
    first = get_cause(diagnose(*lines, timeout(2, 40, "ALLGATHER", lead)))
    assert (first.rule, first.pod) == ("collectives-apart", "a-worker-1")
    assert first.cause.startswith("global rank 2 in ALLGATHER 40, and global ranks 0-1, 3 in ALLREDUCE 41: ")
    assert "Rank 2]" in first.evidence[-1]
    assert (first.rank, first.line) == (2, 2)


def test_timeout_of_all_ranks_in_one_collective_says_nothing_of_paths():
    assert get_cause(diagnose(*(timeout(rank, 41) for rank in range(4)))).rule == "nccl-timeout"


def test_later_timeout_of_a_rank_does_not_count():
    assert get_cause(diagnose(*(timeout(rank, 41) for rank in range(4)), timeout(1, 42))).rule == "nccl-timeout"


def test_collectives_of_other_groups_are_not_compared():
    timeouts = Timeouts()
    timeouts.read(timeout(1, 7, lead="[PG ID 3 PG GUID 12(tp) Rank {rank}]").text, line=1, ranks=())
    assert not timeouts.by_rank


def test_timeouts_of_few_ranks_are_remembered():
    timeouts = Timeouts()
    for rank in range(2 * MAX_RANKS):
        timeouts.read(timeout(rank, 7).text, line=rank + 1, ranks=())
    assert len(timeouts.by_rank) == MAX_RANKS


def test_ranks_that_stayed_behind_differ_from_most():
    collectives = {0: Collective(9, "A"), 1: Collective(9, "A"), 2: Collective(7, "A"), 3: Collective(8, "B")}
    assert find_difference(collectives) == (
        [2, 3],
        "global rank 2 in A 7, global rank 3 in B 8, and global ranks 0-1 in A 9",
    )


GLOO = "RuntimeError: [/pytorch/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation"
SHORT = "[rank{rank}]:[E ProcessGroupNCCL.cpp:523] [Rank {rank}] Watchdog caught collective operation timeout"
PREFIX_ALONE = (
    "[rank{rank}]:[E1121 06:37:49.6 ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout: WorkNCCL(1)"
)


@pytest.mark.parametrize("text", ["[rank{rank}]: " + GLOO, SHORT, PREFIX_ALONE])
def test_rank_without_a_timeout_is_named(text: str):
    lines = [LogLine(pod="a", text=text.format(rank=rank)) for rank in (0, 1, 3)]
    first = get_cause(diagnose(*lines))
    assert (first.rule, first.rank) == ("rank-absent", 2)
    assert first.title == "rank 2 reported no timeout, and other ranks timed out in a collective"
    assert "ranks 0-1, 3 waited" in first.cause


def test_absent_rank_of_a_known_world_is_named_with_its_pod_and_last_line():
    blocks = [item for rank in range(4) for item in block(rank, 1, f"a-worker-{rank}", world=4)]
    last = line("saving the optimizer", 5, "a-worker-3")
    gloo = [line(GLOO, 9, f"a-worker-{rank}") for rank in range(3)]
    first = get_cause(diagnose(*blocks, last, *gloo))
    assert (first.rule, first.rank, first.pod) == ("rank-absent", 3, "a-worker-3")
    assert "its last line is `saving the optimizer`" in first.cause


def read_world(size: int, *lines: LogLine) -> tuple[str, int | None]:
    """Return rule and rank of the first cause of a job with one rank per pod."""
    blocks = [item for rank in range(size) for item in block(rank, 1, f"a-worker-{rank}", world=size)]
    first = diagnose(*blocks, *lines).first_cause
    return (first.rule, first.rank) if first else ("", None)


def test_rank_without_a_timeout_in_a_world_of_two_is_named():
    assert read_world(2, line(GLOO, 9, "a-worker-0")) == ("rank-absent", 1)
    assert read_world(2, line(GLOO, 9, "a-worker-1")) == ("rank-absent", 0)


def test_rank_of_two_with_an_error_of_its_own_is_not_absent():
    error = line("RuntimeError: the shard is empty", 5, "a-worker-1")
    assert read_world(2, error, line(GLOO, 9, "a-worker-0")) == ("exception", 1)


def test_rank_of_a_pod_without_a_log_is_not_named():
    assert get_cause(diagnose(*block(0, 1, "a-worker-0"), line(GLOO, 9, "a-worker-0"))).rule == "gloo-timeout"


def test_ranks_that_a_barrier_names_are_suspects():
    text = "[rank0]: RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 4000 ms"
    assert get_cause(diagnose(LogLine(pod="a", text=text))).title.startswith("ranks 1, 3 reported no timeout")


def test_absent_rank_with_an_error_of_its_own_is_no_suspect():
    error = LogLine(pod="a", text="[rank2]: RuntimeError: the shard is empty")
    assert get_cause(diagnose(*(timeout(rank, 41) for rank in (0, 1, 3)), error)).rule == "exception"


@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 3), (2, 5)])
def test_few_timeouts_do_not_make_all_others_suspects(ranks: tuple[int, ...]):
    assert get_cause(diagnose(*(timeout(rank, 41) for rank in ranks))).rule == "nccl-timeout"


def test_rank_that_only_said_good_bye_is_named():
    lines = [LogLine(pod="a", text="[rank3] bye"), *(LogLine(pod="a", text=timeout(rank, 41).text) for rank in range(3))]
    first = get_cause(diagnose(*lines))
    assert (first.rule, first.rank) == ("rank-absent", 3)
    assert "its last line is `[rank3] bye`" in first.cause


def test_first_cause_is_never_called_a_consequence():
    first = get_cause(
        diagnose(timeout(0, 41), LogLine(pod="b", text="RuntimeError: Connection closed by peer [10.0.0.1]:29500"))
    )
    assert BY_ID[first.rule].role is Role.CONSEQUENCE
    assert first.role is Role.SUSPECT
