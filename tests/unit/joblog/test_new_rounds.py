"""The time left and the stage of a job whose pods join another rendezvous round."""

from __future__ import annotations

import pytest

from kfjob.cli.view_text import remaining_text, status_text
from kfjob.joblog.events import Event, PodPhase, Tick
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from kfjob.joblog.view.stages import find_stage
from tests.unit.api import script

AGENT = "I1121 06:37:49.644000 1 torch/distributed/elastic/agent/server/api.py:900]"
FAILED = f"{AGENT} [default] Worker group FAILED. 2/3 attempts left; will restart worker group"
WAITS = f"{AGENT} [default] Detected 1 new nodes from group_rank=0; will restart worker group"
JOINS = f"{AGENT} [default] Rendezvous'ing worker group"


def program(steps: range, second: int, *, every: int = 1) -> list[Event]:
    """Return the lines of a program without a speed."""
    return [
        script.line(1, f"step {step}/100 loss {3 - step / 100:.3f}", second + every * place) for place, step in enumerate(steps)
    ]


TRAINING = (*script.STARTING, *script.block(0, 1, 5), *script.block(1, 0, 5), *program(range(1, 21), 10))
"""Step 20 of 100 after 30 seconds, a second for each step."""


def read(*events: Event) -> JobView:
    config = ObserveConfig(workers=("train-worker-0", "train-worker-1"), rendezvous="c10d")
    return reduce_all(JobView(config=config), (*TRAINING, *events, Tick(time=0)))


def test_running_round_has_a_time_left_and_no_stage():
    view = read()
    assert (remaining_text(view), str(find_stage(view))) == ("1m20s left", "")


@pytest.mark.parametrize("reason", [FAILED, WAITS])
def test_open_rendezvous_has_no_time_left_and_names_the_pods(reason: str):
    events = [script.line(index, text, 31) for index in (1, 0) for text in (reason, JOINS)]
    view = read(*events)
    assert remaining_text(view) == ""
    text = "rendezvous: `train-worker-0`, `train-worker-1` wait to join; 0 of 2 pods in a round"
    assert str(find_stage(view)) == text
    assert f"stage      {text}" in status_text(view, name="train", now=0)
    view = read(*events, *script.block(0, 0, 40))
    assert str(find_stage(view)) == "rendezvous: `train-worker-1` waits to join; 1 of 2 pods in a round"


def test_restarted_pod_that_waits_is_named_while_the_other_one_trains():
    launch = [
        script.line(0, f"{AGENT} {text}", 30)
        for text in ("Starting elastic_operator with launch configs:", "  entrypoint : train.py", "  min_nodes : 1", "done")
    ]
    events = [event.__class__(pod=event.pod, text=event.text, time=event.time, container_id="other") for event in launch]
    view = read(script.pod(0, PodPhase.RUNNING, container_id="other"), *events)
    assert str(find_stage(view)) == "rendezvous: `train-worker-0` waits to join; 1 of 2 pods in a round"
    assert remaining_text(view) == ""


def test_joined_round_without_a_step_has_no_time_left():
    view = read(script.line(1, JOINS, 31), *script.block(0, 0, 60), *script.block(1, 1, 60))
    assert (remaining_text(view), str(find_stage(view))) == ("", "the training processes have begun again; no progress yet")


@pytest.mark.parametrize("first", [11, 21, 25], ids=["an earlier step", "the next step", "a later step"])
def test_time_left_follows_from_the_steps_of_the_newest_round(first: int):
    """The new round takes 4 seconds for each step; the pause of 300 seconds is that of no step."""
    rounds = (script.line(1, JOINS, 31), *script.block(0, 1, 320), *script.block(1, 0, 320))
    begun = read(*rounds, *program(range(first, first + 1), 330))
    assert remaining_text(begun) == ""
    view = read(*rounds, *program(range(first, first + 5), 330, every=4))
    seconds = (100 - first - 4) * 4
    assert remaining_text(view) == f"{seconds // 60}m{seconds % 60:02}s left"
    assert str(find_stage(view)) == ""


def test_speed_of_an_earlier_round_is_not_shown():
    rounds = (*script.block(0, 1, 320), *script.block(1, 0, 320))
    lines = [script.line(1, f"step {step}/100 loss {3 - step / 100:.3f} 35.1 samples/s", 30 + step) for step in range(21, 25)]
    assert read(*lines).training.speed == 35.1
    assert read(*lines, *rounds, *program(range(25, 26), 330)).training.speed is None


def test_ended_agent_does_not_wait():
    view = read(script.line(1, JOINS, 31), script.line(1, f"{AGENT} Received 15 death signal, shutting down workers", 32))
    assert view.joining == ()
