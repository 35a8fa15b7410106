"""Pods that each train alone, because nothing in their command connects them."""

from __future__ import annotations

import pytest

from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.events import JobChanged, JobPhase, LogLine
from kfjob.joblog.observe_config import ObserveConfig
from tests.unit.diagnose.cases import examine, get_cause


def read(*logs: str, unconnected: str = "") -> Diagnosis:
    pods = [LogLine(pod=f"a-{number}", text=line) for number, log in enumerate(logs) for line in log.splitlines()]
    config = ObserveConfig(workers=tuple(f"a-{number}" for number in range(len(logs))), unconnected=unconnected)
    return examine([*pods, JobChanged(phase=JobPhase.STOPPED)], config)[0]


STEPS = "\n".join(f"step {step} loss {3 - step / 10:.2f}" for step in range(9))


def test_pods_that_all_train_with_a_command_that_connects_nobody():
    first = get_cause(read(STEPS, STEPS, unconnected="python train.py"))
    assert (first.rule, first.evidence) == ("independent-trainings", ("step 8 loss 2.20",))
    assert "2 independent trainings" in first.title


@pytest.mark.parametrize(("one", "two", "unconnected"), [
    (STEPS, STEPS, ""),
    (STEPS, "nothing", "python train.py"),
])  # fmt: skip
def test_pods_may_train_together(one: str, two: str, unconnected: str):
    assert read(one, two, unconnected=unconnected).first_cause is None
