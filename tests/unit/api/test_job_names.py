"""Names of jobs on the command line: several at once, misspelt ones, and with `-o name` those that kubectl takes."""

import pytest

from tests.unit.api import script


@pytest.fixture(autouse=True)
def _jobs(fake):
    for name in ("tiny-llama", "other"):
        fake.play(name, *script.TRAINING, spec=script.SPEC)


@pytest.mark.parametrize("command", ["logs", "status", "watch", "wait", "diagnose", "stop", "relaunch", "report", "history"])
def test_a_misspelt_name_gets_a_suggestion(kfjob, command):
    assert kfjob(command, "tiny-lama") == 3
    assert "hint: did you mean `tiny-llama`? `kfjob list` shows the jobs" in kfjob.err


def test_an_archived_name_is_suggested_too(kfjob):
    kfjob("stop", "tiny-llama")
    assert kfjob("status", "tiny-lama") == 3
    assert "did you mean `tiny-llama`?" in kfjob.err
    assert kfjob("stop", "tiny-llama") == 3
    assert "did you mean" not in kfjob.err


def test_an_error_does_not_keep_the_others_from_being_stopped(kfjob):
    assert kfjob("stop", "nothing", "tiny-llama", "other") == 3
    assert kfjob.out == "tiny-llama\nother\n"
    assert "error: " in kfjob.err


def test_pods_and_jobs_have_the_names_of_kubectl(kfjob):
    assert (kfjob("master", "other", "-o", "name"), kfjob.out) == (0, "pod/train-worker-1\n")
    assert (kfjob("status", "other", "-o", "name"), kfjob.out) == (0, "pod/train-worker-0\npod/train-worker-1\n")
    assert (kfjob("list", "-o", "name"), kfjob.out) == (
        0,
        "pytorchjob.kubeflow.org/tiny-llama\npytorchjob.kubeflow.org/other\n",
    )


def test_logs_take_the_name_of_kubectl(kfjob):
    assert kfjob("logs", "other", "--pod", "train-worker-1", "-o", "raw") == 0
    lines = kfjob.out
    assert lines
    assert (kfjob("logs", "other", "--pod", "pod/train-worker-1", "-o", "raw"), kfjob.out) == (0, lines)


def test_job_whose_pods_are_gone_has_no_name(kfjob):
    assert kfjob("stop", "other") == 0
    for command in ("master", "status"):
        assert kfjob(command, "other", "-o", "name") == 2
        assert "only the logs of this job are left" in kfjob.err
        assert kfjob.out == ""


def test_jobs_of_this_machine_have_no_name_for_kubectl(kfjob):
    assert kfjob("list", "-o", "name", "--backend", "local") == 2
    assert "which does not know the jobs of this machine" in kfjob.err


def test_the_namespace_of_a_job_on_this_machine_is_named(kfjob, here, on_machine):
    (here / "a.py").write_text("print(1)\n")
    assert kfjob("run", "--backend", "local", "-d", "-n", "ml", "--name", "far", "--", "python", "a.py") == 0, kfjob.err
    assert kfjob("status", "far", "--backend", "local") == 3
    assert "hint: it is in another namespace: add `-n ml`" in kfjob.err
