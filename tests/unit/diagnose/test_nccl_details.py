"""A warning of NCCL is the detail of the exception that follows it."""

from __future__ import annotations

import pytest

from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.diagnose.engine.rank_reports import MAX_WARNING_DISTANCE
from tests.unit.diagnose.cases import block, examine, lines

WARN = "a-worker-0:101:160 [{gpu}] transport/nvls.cc:140 NCCL WARN Cuda failure {code} 'odd state'"
EXCEPTION = """{rank}Traceback (most recent call last):
{rank}  File "/w/train.py", line 40, in <module>
{rank}    dist.barrier()
{rank}{end}"""
ENDS = {
    "nccl-error": "torch.distributed.DistBackendError: NCCL error in: a.cpp:12, internal error, NCCL version 2.21.5",
    "nccl-system-error": "torch.distributed.DistBackendError: NCCL error in: a.cpp:12, unhandled cuda error, NCCL 2.21.5",
}


def read(text: str) -> Diagnosis:
    diagnosis, _ = examine(lines(text))
    assert diagnosis.first_cause
    return diagnosis


@pytest.mark.parametrize("rank", ["", "[rank0]: "])
@pytest.mark.parametrize(("rule", "end"), ENDS.items())
def test_warning_becomes_the_detail_of_the_exception(rule: str, end: str, rank: str):
    warning = WARN.format(gpu=0, code=1)
    diagnosis = read(f"{warning}\n{EXCEPTION.format(rank=rank, end=end)}")
    first = diagnosis.first_cause
    assert first
    assert first.rule == rule
    assert first.title.endswith(": Cuda failure 1 'odd state'")
    assert first.evidence[0] == warning
    assert warning not in first.context
    assert not diagnosis.warnings


def test_exception_that_only_the_program_words_quotes_the_warning():
    warning = WARN.format(gpu=0, code=1)
    first = read(f"{warning}\n{EXCEPTION.format(rank='', end='RuntimeError: ncclCommInit gave up')}").first_cause
    assert first
    assert first.title == "the program ended with `RuntimeError: ncclCommInit gave up`"
    assert first.evidence[0] == warning


def test_warning_of_the_same_gpu_comes_first():
    warnings = "\n".join(WARN.format(gpu=gpu, code=gpu) for gpu in (0, 1, 2))
    first = read(f"{warnings}\n{EXCEPTION.format(rank='[rank1]: ', end=ENDS['nccl-error'])}").first_cause
    assert first
    assert first.title.endswith(": Cuda failure 1 'odd state'")


def test_other_exceptions_and_distant_warnings_stay_apart():
    warning = WARN.format(gpu=0, code=1)
    other = read(f"{warning}\n{EXCEPTION.format(rank='', end='KeyError: 1')}")
    distant = read("\n".join([warning, *["loading"] * MAX_WARNING_DISTANCE, EXCEPTION.format(rank="", end=ENDS["nccl-error"])]))
    assert [issue.rule for issue in (*other.warnings, *distant.warnings)] == ["nccl-warning", "nccl-warning"]


def test_warning_of_an_earlier_round_stays_apart():
    warning = WARN.format(gpu=0, code=1)
    events = [*block(0, 0, "a-worker-0"), *lines(warning, 1), *block(0, 2, "a-worker-0", port=1235)]
    diagnosis, _ = examine([*events, *lines(EXCEPTION.format(rank="", end=ENDS["nccl-error"]), 3)])
    assert diagnosis.first_cause
    assert warning not in diagnosis.first_cause.evidence
