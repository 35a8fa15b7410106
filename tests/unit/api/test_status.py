"""What a status reads of containers before a restart and of nodes that do not answer; what it cannot read is reported."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from kfjob.base.errors import NodeUnreachable
from kfjob.joblog.events import JobPhase, PodPhase
from tests.unit.api import script

LOST = "no log is left of what `train-worker-1` printed before the restart"
ENDED = (
    script.pod(1, PodPhase.FAILED, restarts=1, exit_code=1, container_id="second"),
    script.job(JobPhase.FAILED, ended=script.START + 60 * 10**9),
)
SECOND = replace(script.line(1, "loading the data", 50), container_id="second")


def test_status_reads_the_log_of_the_container_before_the_restart(fake, kfjob):
    fake.play("train", *script.TRAINING, SECOND, *ENDED, spec=script.SPEC)
    assert kfjob("status", "train") == 0
    assert LOST not in kfjob.out
    assert kfjob("status", "train", "-o", "json") == 0
    state = json.loads(kfjob.out)
    assert (state["progress"]["step"], state["progress"]["pod"]) == (20, "train-worker-1")
    assert [pod["restarts"] for pod in state["pods"]] == [0, 1]


def test_progress_of_both_containers_is_one_run(fake, kfjob):
    steps = [replace(script.progress(1, step, 5.0), container_id="second") for step in range(21, 25)]
    fake.play("train", *script.TRAINING, SECOND, *steps, *ENDED, spec=script.SPEC)
    assert kfjob("status", "train", "-o", "json") == 0
    progress = json.loads(kfjob.out)["progress"]
    assert (progress["step"], progress["first_loss"]) == (24, 7.9)


def test_status_says_that_the_log_of_the_container_before_the_restart_is_gone(fake, kfjob):
    fake.play("train", *script.STARTING, *script.block(0, 0, 5), SECOND, *ENDED, spec=script.SPEC)
    assert kfjob("status", "train") == 0
    assert LOST in kfjob.out


@pytest.mark.parametrize("silent", ["train-worker-0", "train-worker-1"])
def test_status_names_the_pod_whose_node_does_not_answer(fake, kfjob, monkeypatch, silent):
    read = fake.logs

    def logs(ref, pod, log_range, **options):
        if pod == silent:
            raise NodeUnreachable(f"the log of pod `{pod}` cannot be read: its node does not answer")
        return read(ref, pod, log_range, **options)

    fake.play("train", *script.TRAINING, spec=script.SPEC)
    monkeypatch.setattr(fake, "logs", logs)
    assert kfjob("status", "train") == 0
    assert f"`{silent}`: NodeNotReady (its node does not answer)" in kfjob.out
    assert kfjob("master", "train") == 0
    assert kfjob("diagnose", "train") == 0
