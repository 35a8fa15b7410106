"""`kfjob diagnose` on a scripted cluster and on folders of saved logs."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from kfjob.joblog.diagnose.rules import RULES
from kfjob.joblog.events import JobPhase, KubernetesEvent, LogLine, PodPhase
from kfjob.spec.job import JobSpec
from kfjob.trainspec.train_spec import TrainSpec
from tests.unit.api import script
from tests.unit.diagnose.cases import START, exit_report


def test_saved_logs_that_show_only_a_failed_worker_exit_with_1(fake, kfjob, tmp_path):
    (tmp_path / "train-worker-0.log").write_text(exit_report())
    assert kfjob("diagnose", "--from", str(tmp_path)) == 1
    assert "[worker-failed]" in kfjob.out
    assert "failure is unknown" in kfjob.err


@pytest.mark.parametrize(("other", "time"), [
    ("step 1 loss 2.0", None),
    ("2025-11-21 06:32:50 INFO loading the data", "2025-11-21T06:38:10.000000000Z"),
])  # fmt: skip
def test_time_without_a_year_takes_that_of_other_lines(kfjob, tmp_path, other: str, time: str | None):
    (tmp_path / "a-worker-0.log").write_text(f"{other}\n{exit_report()}\n")
    assert kfjob("diagnose", "--from", str(tmp_path), "-o", "json") == 1
    assert json.loads(kfjob.out)["cause"]["time"] == time


def test_status_names_the_exception_and_the_next_command(fake, kfjob):
    traceback = "Traceback (most recent call last):\n  File \"/workspace/train.py\", line 9, in load\n    f()\nKeyError: 'x'"
    lines = [LogLine(pod="train-worker-0", text=text, container_id="c0") for text in traceback.splitlines()]
    fake.play("train", *script.STARTING, *lines, script.job(JobPhase.FAILED, message="it failed"), spec=script.SPEC)
    assert kfjob("status", "train") == 0
    assert "cause      the program ended with `KeyError: 'x'` at /workspace/train.py:9 in train-worker-0\n" in kfjob.out
    assert kfjob.out.endswith("next       kfjob diagnose train\n")
    assert kfjob("status", "train", "-o", "json") == 0
    assert json.loads(kfjob.out)["cause"]["place"] == "/workspace/train.py:9"


def test_warnings_json_output(fake, kfjob):
    fake.play("train", *script.TRAINING, script.line(1, "/x.py:3: UserWarning: y", 40), spec=script.SPEC)
    assert kfjob("diagnose", "train", "--warnings", "-o", "json") == 0
    assert json.loads(kfjob.out) == [
        {
            "text": "/x.py:3: UserWarning: y",
            "rule": "",
            "harmless": False,
            "count": 1,
            "pods": ["train-worker-1"],
            "ranks": [0],
        }
    ]


def test_watch_of_an_ended_job_prints_its_messages_by_their_own_times(fake, kfjob):
    second = 10**9
    job = script.job(JobPhase.FAILED, message="it failed")
    end = replace(job, ended=START + 60 * second, time=START + 60 * second)
    lines = [script.line(0, exit_report(pid=offset), offset) for offset in (20, 30)]
    fake.play("train", *script.STARTING, end, *lines, spec=script.SPEC)
    assert kfjob("watch", "train", "-o", "plain") == 100
    messages = [line for line in kfjob.err.splitlines() if re.match(r"\d\d:\d\d:\d\d  ", line)]
    assert len(messages) > 3
    assert [message[:8] for message in messages] == sorted(message[:8] for message in messages)
    assert messages[-1].endswith("train  Failed: it failed")


@pytest.mark.parametrize("trained", [False, True])
def test_a_run_that_begins_at_its_last_step_has_trained_nothing(fake, kfjob, trained):
    head = "2026-11-23 01:13:58 I [train.py:94]"
    texts = [
        f"{head} Start tiny-llama with 9 parameters, strategy fsdp full, world size 1, global batch 1 samples, 100 steps",
        f"{head} Resume step-000100 checkpoints/first/step-000100",
        f"{head} Outcome finished step 100 loss 7.93782 checkpoint checkpoints/first/step-000100",
    ]
    lines = [script.line(0, text, 10) for text in texts]
    if trained:
        lines.insert(2, script.progress(0, 100, 2.0))
    spec = JobSpec(name="train", image="a:1", train=TrainSpec(model="tiny-llama", data="synthetic", max_steps=100))
    fake.play(
        "train", *script.STARTING, *lines, script.job(JobPhase.SUCCEEDED), spec=spec.model_dump_json(exclude_defaults=True)
    )
    words = "nothing was trained: checkpoint step-000100 is at step 100 of 100; `kfjob relaunch JOB --set train.max_steps="
    for command, stream in (("status train", "out"), ("watch train -o plain", "err"), ("wait train", "err")):
        assert kfjob(*command.split()) == 0
        assert (words in getattr(kfjob, stream)) is not trained, command


def test_wait_diagnoses_a_failed_job(fake, kfjob):
    fake.play("train", *script.FAILED, spec=script.SPEC)
    assert kfjob("wait", "train") == 100
    assert kfjob.out == "Failed\n"
    note, cause = kfjob.err.split("\n", 1)
    assert note.startswith("note: deleted 1 pod that still ran after the failure: `train-worker-1`; their logs are in /")
    assert cause.startswith("error: module `flash_attn` is not installed [module-not-found]\n")


def test_wait_keeps_the_pods_of_a_failed_job_that_asks_for_it(fake, kfjob):
    fake.play("train", *script.FAILED, spec=json.dumps({**json.loads(script.SPEC), "run": {"after_failure": "keep"}}))
    assert kfjob("wait", "train") == 100
    assert "deleted" not in kfjob.err
    assert fake.calls == []


def test_cluster_events_are_diagnosed_and_archived(fake, kfjob, tmp_path):
    quota = "Error creating: forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
    event = KubernetesEvent(
        kind="PyTorchJob",
        name="train",
        about_job=True,
        reason="FailedCreatePod",
        message=quota,
        warning=True,
        time=script.START,
    )
    fake.play("train", script.job(JobPhase.PENDING, reason="PyTorchJobCreated"), event, spec=script.SPEC)
    assert kfjob("diagnose", "train") == 0
    assert f"train: Pending, no pods: FailedCreatePod: {quota}" in kfjob.out
    assert "error: the namespace's quota `small` is used up [quota-exceeded]" in kfjob.out
    assert "it requests pods=1, and pods=2 of pods=2 are used" in kfjob.out
    before = kfjob.out.partition("error:")[2]
    assert kfjob("stop", "train") == 0
    assert kfjob("diagnose", "train") == 0
    assert kfjob.out.partition("error:")[2] == before


def test_unknown_or_missing_job_is_an_error(fake, kfjob):
    assert kfjob("diagnose", "nope") == 3
    assert kfjob("diagnose") == 2


def test_run_diagnose_returns_the_first_cause(fake):
    from kfjob import attach

    fake.play("train", *script.STARTING, script.pod(1, PodPhase.PENDING, reason="ErrImagePull", message="r/a:1: not found"))
    diagnosis = attach("train").diagnose()
    assert diagnosis.first_cause
    assert (diagnosis.first_cause.rule, diagnosis.first_cause.pod) == ("image-not-found", "train-worker-1")


def test_all_rules_are_listed_without_a_job(kfjob):
    assert kfjob("diagnose", "--rules") == 0
    assert "\ncuda-oom " in kfjob.out
    assert kfjob("diagnose", "--rules", "-o", "json") == 0
    rules = {rule["id"]: rule for rule in json.loads(kfjob.out)}
    assert rules["cuda-oom"]["pattern"].startswith("(?:CUDA|HIP)")
    assert len(rules) == len(RULES)
