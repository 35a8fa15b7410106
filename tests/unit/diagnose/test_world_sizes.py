"""World sizes that programs print themselves, and the jobs whose pods train alone."""

from __future__ import annotations

import pytest

from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.diagnose.engine.line_reports import WorldSize, read_world_size
from kfjob.joblog.events import JobChanged, JobPhase, LogLine
from kfjob.joblog.observe_config import ObserveConfig
from tests.unit.diagnose.cases import examine


def read(*logs: str, unconnected: str = "") -> Diagnosis:
    pods = [LogLine(pod=f"a-{number}", text=line) for number, log in enumerate(logs) for line in log.splitlines()]
    config = ObserveConfig(workers=tuple(f"a-{number}" for number in range(len(logs))), unconnected=unconnected)
    return examine([*pods, JobChanged(phase=JobPhase.STOPPED)], config)[0]


ALONE = [
    "[rank0] world_size=1, local_rank=0",
    "Num processes: 1",
    "Initialized process group with 1 ranks",
    "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1",
    "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/8",
    "a-0:22:22 [0] NCCL INFO comm 0x55 rank 0 nranks 8 cudaDev 0 - Init COMPLETE",
]


@pytest.mark.parametrize("text", ALONE)
def test_pods_whose_programs_are_all_alone_are_independent_trainings(text: str):
    first = read(f"start\n{text}\nstep 1", f"start\n{text}\nstep 1").first_cause
    assert first
    assert (first.rule, first.evidence) == ("independent-trainings", (text,))


@pytest.mark.parametrize(("one", "two"), [
    ("world_size=2", "world_size=2"),
    ("MEMBER: 1/2", "MEMBER: 2/2"),
    ("world_size=1", "nothing"),
    ("Namespace(lr=1, world_size=1)", "Namespace(lr=1, world_size=1)"),
    ("world_size=1\nrank 0 nranks 2", "world_size=1\nrank 1 nranks 2"),
    ("tensor_model_parallel_world_size=1", "tensor_model_parallel_world_size=1"),
])  # fmt: skip
def test_pods_of_one_world_are_no_independent_trainings(one: str, two: str):
    assert read(one, two).first_cause is None


def test_one_pod_may_be_alone():
    assert read("world_size=1").first_cause is None


def test_largest_world_is_kept():
    world = read_world_size(WorldSize(), "rank 0 nranks 8")
    assert read_world_size(world, "rank 1 nranks 8") == world
    assert read_world_size(world, "rank 0 nranks 2") == world
    assert read_world_size(world, "world size: 16") == WorldSize(16, has_rank0=False, evidence="world size: 16")


STEPS = "\n".join(f"step {step} loss {3 - step / 10:.2f}" for step in range(9))


def test_pods_that_all_train_with_a_command_that_connects_nobody():
    first = read(STEPS, STEPS, unconnected="python train.py").first_cause
    assert first
    assert (first.rule, first.evidence) == ("independent-trainings", ("step 8 loss 2.20",))
    assert "2 independent trainings" in first.title


@pytest.mark.parametrize(("one", "two", "unconnected"), [
    (STEPS, STEPS, ""),
    (STEPS, "nothing", "python train.py"),
    (f"world_size=2\n{STEPS}", STEPS, "python train.py"),
])  # fmt: skip
def test_pods_may_train_together(one: str, two: str, unconnected: str):
    assert read(one, two, unconnected=unconnected).first_cause is None
