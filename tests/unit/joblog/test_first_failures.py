"""The process that failed first, where each agent reports one that failed."""

from __future__ import annotations

import pytest

from kfjob.joblog.events import LogLine
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from tests.unit.diagnose.cases import block, line

FIRST, OTHER = "a-worker-0", "a-worker-1"


def report(pod: str, code: int, second: int) -> LogLine:
    source = f"E1121 06:38:{second}.644000 1 torch/distributed/elastic/multiprocessing/api.py:874]"
    return line(f"{source} failed (exitcode: {code}) local_rank: 0 (pid: 93) of binary: /usr/bin/python", second, pod)


@pytest.mark.parametrize(("codes", "seconds", "pod"), [
    ((1, 1), (50, 51), FIRST),
    ((1, 1), (51, 50), OTHER),
    ((1, -9), (50, 52), OTHER),  # the other agent noticed the kill later than the lost connection
    ((-11, 1), (52, 50), FIRST),
    ((1, -6), (50, 52), FIRST),  # NCCL's watchdog aborts the processes that wait
    ((1, -9), (20, 52), FIRST),
])  # fmt: skip
@pytest.mark.parametrize("order", [1, -1])
def test_process_that_failed_first_is_named(codes: tuple[int, int], seconds: tuple[int, int], pod: str, order: int):
    reports = [report(name, code, second) for name, code, second in zip((FIRST, OTHER), codes, seconds, strict=True)]
    rounds = [*block(0, 0, FIRST), *block(1, 0, OTHER)]
    view = reduce_all(JobView(), [*rounds, *reports[::order]])
    assert view.failure
    assert view.failure.pod == pod
