"""Which pods the guard takes for lost, and what it knows of checkpoints and earlier launches."""

import pytest

from kfjob.base.units import SECOND
from kfjob.guard.decision import Relaunch
from kfjob.guard.facts import extend_history, find_checkpoint, find_lost_pods, read_history
from kfjob.joblog.events import Event, JobChanged, JobPhase, KubernetesEvent, LogLine, PodChanged, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

FIRST, SECOND_POD = "train-worker-0", "train-worker-1"


def view(*events: Event):
    config = ObserveConfig(workers=(FIRST, SECOND_POD))
    end = JobChanged(phase=JobPhase.FAILED, ended=100 * SECOND, time=100 * SECOND)
    return reduce_all(JobView(config=config), [*events, end])


def pod(name, phase="Running", at=99, **fields):
    return PodChanged(pod=name, phase=PodPhase(phase), node="a", time=at * SECOND, **fields)


def failed(name, at):
    return pod(name, "Failed", at, exit_code=1, last_ended=at * SECOND)


def event(name, reason, at, message=""):
    return KubernetesEvent(kind="Pod", name=name, reason=reason, message=message, time=at * SECOND)


CASES = {
    "no pod": ([pod(FIRST), pod(SECOND_POD)], [], []),
    "terminating": ([pod(FIRST), pod(SECOND_POD, reason="Terminating")], [], [SECOND_POD]),
    "deleted": ([pod(FIRST), pod(SECOND_POD), pod(SECOND_POD, "Deleted")], [], [SECOND_POD]),
    "gone before the guard started": ([pod(FIRST)], [], [SECOND_POD]),
    "killed": ([pod(FIRST), failed(SECOND_POD, 99)], [event(SECOND_POD, "Killing", 98)], [SECOND_POD]),
    "evicted": ([pod(FIRST), pod(SECOND_POD, "Failed", reason="Evicted")], [], [SECOND_POD]),
    "failed by itself": ([pod(FIRST), failed(SECOND_POD, 99)], [], []),
    "another pod removed after the failure": (
        [failed(FIRST, 90), pod(SECOND_POD, "Deleted", 99)], [event(SECOND_POD, "Killing", 99)], [],
    ),
    "others failed after the removal": (
        [failed(FIRST, 95), pod(SECOND_POD, "Deleted", 90)], [event(SECOND_POD, "Killing", 90)], [SECOND_POD],
    ),
    "removed by the operator after the end": ([pod(FIRST), failed(SECOND_POD, 99)], [event(FIRST, "Killing", 110)], []),
    "another job's pod": ([pod(FIRST), pod(SECOND_POD)], [event("other-worker-0", "Killing", 98)], []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lost_pods(name):
    states, events, lost = CASES[name]
    assert [entry.pod for entry in find_lost_pods(view(*states), events)] == lost


def test_event_about_the_node_explains_a_lost_pod():
    events = [event(SECOND_POD, "NodeNotReady", 97, "Node is not ready"), event(SECOND_POD, "Killing", 98)]
    (entry,) = find_lost_pods(view(pod(FIRST), pod(SECOND_POD)), events)
    assert (entry.why, entry.node, entry.is_node_fault) == ("NodeNotReady: Node is not ready", "a", True)


def test_newest_checkpoint_is_that_of_the_log_or_of_the_resume():
    lines = ["Resume step-00000040 /data/step-00000040", "Checkpoint step-00000060 in 0.1 s /data/step-00000060"]
    events = [LogLine(pod=FIRST, text=f"2026-11-21 07:10:48 I [train.py:18] {line}") for line in lines]
    assert find_checkpoint(view()) is None
    assert find_checkpoint(view(*events[:1])) == 40
    assert find_checkpoint(view(*events)) == 60


def test_history_is_read_back_and_damage_counts_as_none():
    entry = Relaunch(launch="l1", reason="pod lost", step=3)
    text = extend_history((), entry, now=7)
    (read,) = read_history(text)
    assert (read.launch, read.time, read.step) == ("l1", 7, 3)
    for damaged in ("", "{", '{"launch": 1}', '[{"step": "x"}]'):
        assert read_history(damaged) == ()
