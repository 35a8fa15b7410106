"""Run the commands on a scripted cluster, and check stdout, stderr and exit codes."""

from __future__ import annotations

import json
import re

import pytest

from kfjob import Settings, attach
from kfjob.base.errors import UsageError
from kfjob.joblog.events import JobPhase, PodPhase
from tests.unit.api import script

VALID = "name: train\nimage: a:1\nnodes: 2\ncommand: torchrun train.py\n"


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(VALID)
    return str(file)


def test_submit_as_json_has_namespace_and_backend(fake, kfjob, spec):
    assert kfjob("submit", spec, "-o", "json", "-n", "team") == 0
    result = json.loads(kfjob.out)
    assert (result["name"], result["namespace"], result["backend"]) == ("train", "team", "kubernetes")
    assert result["launch"] == fake.get("train", namespace="team").launch


def test_render_prints_the_object_that_submit_sends(fake, kfjob, spec):
    import yaml

    assert kfjob("render", spec) == 0
    (rendered,) = yaml.safe_load_all(kfjob.out)
    kfjob("submit", spec)
    submitted = fake.get("train", namespace="default")
    assert rendered["metadata"]["annotations"]["kfjob.dev/spec"] == submitted.spec


def test_watch_begins_with_the_last_ten_lines(fake, kfjob):
    fake.play("train", *script.SUCCEEDED, spec=script.SPEC)
    assert kfjob("watch", "train") == 0
    assert [line.split("Batch ")[1].split()[0] for line in kfjob.out.splitlines()] == [str(step) for step in range(11, 21)]


@pytest.mark.parametrize("goal", ["running", "progress"])
def test_wait_for_a_state_of_a_job_that_continues(fake, kfjob, goal):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert kfjob("wait", "train", "--for", goal, "--timeout", "20s") == 0
    assert kfjob.out == "Running\n"


@pytest.mark.parametrize(("goal", "missed"), [("progress", "has printed no progress"), ("ended", "has not ended")])
def test_wait_names_what_it_waited_for_in_vain(fake, kfjob, goal, missed):
    fake.play("train", *script.STARTING, spec=script.SPEC)
    assert kfjob("wait", "train", "--for", goal) == 101
    assert f"error: job `train` {missed}\n  cause: the backend reports no more changes; it was last Running" in kfjob.err


def test_unknown_goal_of_a_wait_is_an_error_in_python(fake, tmp_path):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    run = attach("train", settings=Settings(state=tmp_path))
    assert run.wait(goal="progress") == "Running"
    with pytest.raises(UsageError, match="`happy` is nothing to wait for"):
        run.wait(goal="happy")


@pytest.mark.parametrize("goal", ["running", "progress"])
def test_wait_for_a_state_ends_with_the_job(fake, kfjob, goal):
    fake.play("train", *script.STARTING, script.pod(0, PodPhase.FAILED), script.job(JobPhase.FAILED), spec=script.SPEC)
    assert kfjob("wait", "train", "--for", goal) in (0, 100)
    assert kfjob("wait", "train", "--for", "progress") == 100


def test_wait_until_the_name_is_free(fake, kfjob):
    assert kfjob("wait", "train", "--for", "gone") == 0
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert kfjob("wait", "train", "--for", "gone", "--timeout", "0") == 124
    assert "error: job `train` still exists after 0 s\n  cause: it is Running\nhint: `kfjob stop train`" in kfjob.err


def test_stop_all_asks_first_and_names_the_jobs(fake, kfjob):
    assert kfjob("stop", "--all", "--yes") == 0
    assert "no jobs in namespace `default`" in kfjob.err
    for name in ("one", "two"):
        fake.play(name, *script.TRAINING)
    assert kfjob("stop", "--all") == 2
    assert "`--all` without a terminal needs `--yes`: stop `one`, `two` of namespace `default`?" in kfjob.err
    assert fake.calls == []
    assert kfjob("stop", "--all", "--yes") == 0
    assert fake.calls == [("stop", "one"), ("stop", "two")]
    assert kfjob("stop") == 2
    assert kfjob("stop", "one", "--all") == 2


@pytest.mark.parametrize("command", ["suspend", "resume"])
def test_job_in_a_queue_is_not_suspended(fake, kfjob, command):
    spec = json.loads(script.SPEC) | {"scheduling": {"queue": "team"}}
    fake.play("train", *script.TRAINING, spec=json.dumps(spec))
    assert kfjob(command, "train") == 2
    assert "error: the queue `team` decides when job `train` runs\nhint: `kfjob stop train` and `kfjob rel" in kfjob.err


def test_job_without_a_recorded_spec_is_not_changed(fake, kfjob):
    fake.play("train", *script.TRAINING)
    assert kfjob("scale", "train", "2") == 2
    assert "has no record of a spec, because kfjob did not submit it from one" in kfjob.err


@pytest.mark.parametrize(
    ("fields", "kind", "reason"),
    [({}, "PyTorchJob", "its spec has no `elastic`"), ({"elastic": {"min": 1, "max": 8}}, "TrainJob", "it is a TrainJob")],
)
def test_job_of_fixed_size_is_not_scaled(fake, kfjob, fields, kind, reason):
    fake.play("train", *script.TRAINING, spec=json.dumps(json.loads(script.SPEC) | fields), job_kind=kind)
    assert kfjob("scale", "train", "7") == 2
    assert f"has a fixed number of nodes, because {reason}\nhint: `kfjob relaunch train --set nodes=7`" in kfjob.err


def test_job_over_its_limits_is_archived_and_stopped(fake, kfjob):
    spec = json.loads(script.SPEC) | {"watchdog": {"crashes": 2}}
    crashed = script.pod(0, PodPhase.RUNNING, restarts=2, reason="CrashLoopBackOff")
    fake.play("train", *script.TRAINING, crashed, spec=json.dumps(spec))
    assert kfjob("wait", "train") == 103
    assert "job `train` was stopped: pod `train-worker-0` was restarted 2 times, and its watchdog allows 1" in kfjob.err
    assert fake.calls == [("stop", "train")]
    assert kfjob("logs", "train", "--pod", "train-worker-1") == 0  # from the archive
    assert "Batch 20" in kfjob.out


def test_follow_ends_with_summary_and_diagnosis_after_a_stop_by_the_watchdog(fake, kfjob):
    spec = json.loads(script.SPEC) | {"watchdog": {"crashes": 2}}
    fake.play("train", *script.TRAINING, script.pod(0, PodPhase.RUNNING, restarts=2), spec=json.dumps(spec))
    assert kfjob("watch", "train") == 103
    assert fake.calls == [("stop", "train")]
    reason = "pod `train-worker-0` was restarted 2 times, and its watchdog allows 1"
    assert re.search(rf"\ntrain: Stopped after \S+: {re.escape(reason)}\n", kfjob.err)
    assert f"error: kfjob stopped the job: {reason} [limit-exceeded]" in kfjob.err
    assert f"error: job `train` was stopped: {reason}\nhint: " in kfjob.err


def test_master_without_evidence_is_marked_as_predicted(fake, kfjob):
    fake.play("train", *script.STARTING, spec=script.SPEC)
    assert kfjob("master", "train") == 0
    assert "predicted" in kfjob.out


def test_wait_for_a_master_times_out_with_exit_code_124(fake, kfjob, monkeypatch):
    monkeypatch.setattr("kfjob.api.master.discover.POLL_SECONDS", 0.01)
    fake.play("train", *script.STARTING, spec=script.SPEC)
    assert kfjob("master", "train", "--wait", "0.05") == 124


def test_submit_reads_a_spec_from_standard_input(fake, kfjob, monkeypatch):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(VALID))
    assert kfjob("submit", "-") == 0
    assert kfjob.out == "train\n"


def test_interrupt_detaches_and_prints_the_command_to_stop(fake, kfjob, monkeypatch):
    fake.play("train", *script.TRAINING, spec=script.SPEC)

    def interrupt():
        yield script.job(JobPhase.RUNNING)
        raise KeyboardInterrupt

    monkeypatch.setattr("kfjob.api.lifecycle.wait.stream_events", lambda _backend, _ref, **_: interrupt())
    assert kfjob("watch", "train") == 130
    assert "`kfjob stop train` stops it" in kfjob.err
    assert fake.calls == []


def test_a_command_without_its_job_names_the_jobs(fake, kfjob):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert kfjob("history") == 2
    assert "error: JOB is missing\nhint: the only job is `train`: `kfjob history train`" in kfjob.err
    assert kfjob("status") == 2
    assert "hint: the only job is `train`: `kfjob status train`; `--from PATH` reads saved logs" in kfjob.err


def test_import_of_a_trainjob_chooses_one_of_several(kfjob, here):
    job = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: NAME}\n"
    job += "spec: {runtimeRef: {name: torch}, trainer: {image: 'a:1', command: [torchrun, train.py]}}\n"
    (here / "jobs.yaml").write_text("---\n".join(job.replace("NAME", name) for name in ("one", "two")))
    assert kfjob("import", "trainjob", "jobs.yaml", "--name", "two", "-o", "json") == 0
    spec = json.loads(kfjob.out)["spec"]
    assert (spec["name"], spec["target"]) == ("two", "trainjob")
