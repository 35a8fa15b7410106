"""A pod that was deleted while the job ran is the cause of the failure of the others."""

from __future__ import annotations

import pytest

from kfjob.base.units import SECOND
from kfjob.joblog.events import NODE_NOT_READY, TERMINATING, Event, JobChanged, JobPhase, KubernetesEvent, PodChanged, PodPhase
from tests.unit.diagnose.cases import START, block, examine, find_cause, get_cause, lines, progress

FIRST, OTHER = "a-worker-0", "a-worker-1"
LOST = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/train.py", line 9, in main
[rank0]:     loss.backward()
[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:29500"""
ERROR = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/w/data.py", line 31, in fill
[rank1]:     text = row["title"]
[rank1]: KeyError: 'title'"""


def pod(name: str, phase: PodPhase, second: int, *, reason: str = "", failed: bool = False) -> PodChanged:
    time = START + second * SECOND
    code, ended = (1, time) if failed else (None, None)
    return PodChanged(
        pod=name, phase=phase, time=time, started=START, created=START, reason=reason, exit_code=code, last_ended=ended
    )


def removal(
    second: int, reason: str = "Killing", message: str = "Stopping container pytorch", *, name: str = OTHER
) -> KubernetesEvent:
    time = START + second * SECOND
    return KubernetesEvent(kind="Pod", name=name, reason=reason, message=message, time=time, first=time)


def job(phase: JobPhase, second: int) -> JobChanged:
    return JobChanged(phase=phase, time=START + second * SECOND, ended=START + second * SECOND)


RUNNING: list[Event] = [pod(name, PodPhase.RUNNING, 0) for name in (FIRST, OTHER)]
TRAINING: list[Event] = [progress(step, step) for step in range(1, 50)]
FAILED: list[Event] = [*lines(LOST, 61), pod(FIRST, PodPhase.FAILED, 62, failed=True), job(JobPhase.FAILED, 63)]


@pytest.mark.parametrize("deletion", [
    [removal(60)],
    [removal(60), pod(OTHER, PodPhase.DELETED, 61)],
    [pod(OTHER, PodPhase.RUNNING, 60, reason=TERMINATING)],
])  # fmt: skip
def test_deleted_pod_is_the_first_cause(deletion: list[Event]):
    first = find_cause([*RUNNING, *TRAINING, *deletion, *FAILED])
    assert (first.rule, first.pod) == ("pod-deleted", OTHER)


@pytest.mark.parametrize("survivor", [
    [],
    [pod(FIRST, PodPhase.RUNNING, 80, reason=TERMINATING)],
    [pod(FIRST, PodPhase.FAILED, 90, failed=True)],
])  # fmt: skip
def test_survivors_that_kfjob_deletes_after_the_failure_do_not_hide_the_deleted_pod(survivor: list[Event]):
    events = [*RUNNING, *TRAINING, removal(60), pod(OTHER, PodPhase.DELETED, 61), *lines(LOST, 61), job(JobPhase.FAILED, 60)]
    first = find_cause([*events, removal(76, name=FIRST), *survivor])
    assert (first.rule, first.pod) == ("pod-deleted", OTHER)


def test_error_of_an_earlier_round_is_not_the_cause():
    rounds = [block(rank, second, name) for second in (0.1, 5) for rank, name in enumerate((FIRST, OTHER))]
    log = [line for lines_of_round in (*rounds[:2], lines(ERROR, 1, OTHER), *rounds[2:]) for line in lines_of_round]
    assert find_cause([*RUNNING, *log, removal(60), *FAILED]).rule == "pod-deleted"


def test_event_with_the_reason_of_the_deletion_comes_first():
    eviction = removal(60, "TaintManagerEviction", f"Marking for deletion Pod x/{OTHER}")
    diagnosis, _ = examine([*RUNNING, *TRAINING, eviction, removal(60), *FAILED])
    assert get_cause(diagnosis).rule == "pod-evicted-by-taint"
    assert "pod-deleted" not in {issue.rule for issue in diagnosis.other_causes}


def test_pod_that_the_operator_deletes_after_the_failure_is_no_cause():
    failed: list[Event] = [*lines(LOST, 60), pod(FIRST, PodPhase.FAILED, 61, failed=True)]
    removed: list[Event] = [removal(61), pod(OTHER, PodPhase.DELETED, 63), job(JobPhase.FAILED, 62)]
    assert find_cause([*RUNNING, *TRAINING, *failed, *removed]).rule == "peer-closed"


@pytest.mark.parametrize("phase", [JobPhase.STOPPED, JobPhase.SUCCEEDED, JobPhase.RUNNING])
def test_deletion_without_a_failure_is_no_cause(phase: JobPhase):
    events = [*RUNNING, *TRAINING, removal(60), pod(OTHER, PodPhase.DELETED, 61), job(phase, 62)]
    assert examine(events)[0].first_cause is None


def test_container_that_starts_again_is_not_a_deleted_pod():
    message = "Container pytorch failed liveness probe, will be restarted"
    assert find_cause([*RUNNING, *TRAINING, removal(60, message=message), *FAILED]).rule == "peer-closed"


SILENT: list[Event] = [
    removal(60, NODE_NOT_READY, "Node is not ready"),
    pod(OTHER, PodPhase.RUNNING, 60, reason=NODE_NOT_READY),
]


@pytest.mark.parametrize("order", [1, -1], ids=["event first", "state first"])
def test_node_that_does_not_answer_is_the_first_cause_until_it_answers_again(order: int):
    silent: list[Event] = [*RUNNING, *TRAINING, *SILENT[::order]]
    diagnosis = examine(silent)[0]
    assert diagnosis.first_cause
    assert (diagnosis.first_cause.rule, diagnosis.first_cause.pod) == ("node-lost", OTHER)
    first = find_cause([*silent, pod(OTHER, PodPhase.RUNNING, 90), *lines(ERROR, 99), job(JobPhase.FAILED, 100)])
    assert first.rule == "exception"
