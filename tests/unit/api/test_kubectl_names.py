"""`-o name` prints what kubectl takes."""

from __future__ import annotations

import pytest

from tests.unit.api import script


@pytest.fixture
def job(fake) -> None:
    fake.play("train", *script.TRAINING, spec=script.SPEC)


@pytest.mark.usefixtures("job")
def test_pods_and_jobs_have_the_names_of_kubectl(kfjob):
    assert (kfjob("master", "train", "-o", "name"), kfjob.out) == (0, "pod/train-worker-1\n")
    assert (kfjob("status", "train", "-o", "name"), kfjob.out) == (0, "pod/train-worker-0\npod/train-worker-1\n")
    assert (kfjob("list", "-o", "name"), kfjob.out) == (0, "pytorchjob.kubeflow.org/train\n")


@pytest.mark.usefixtures("job")
def test_logs_take_the_name_of_kubectl(kfjob):
    assert kfjob("logs", "train", "--pod", "train-worker-1", "-o", "raw") == 0
    lines = kfjob.out
    assert lines
    assert (kfjob("logs", "train", "--pod", "pod/train-worker-1", "-o", "raw"), kfjob.out) == (0, lines)


@pytest.mark.usefixtures("job")
def test_job_whose_pods_are_gone_has_no_name(kfjob):
    assert kfjob("stop", "train") == 0
    for command in ("master", "status"):
        assert kfjob(command, "train", "-o", "name") == 2
        assert "only the logs of this job are left" in kfjob.err
        assert kfjob.out == ""


def test_jobs_of_this_machine_have_no_name_for_kubectl(kfjob):
    assert kfjob("list", "-o", "name", "--backend", "local") == 2
    assert "which does not know the jobs of this machine" in kfjob.err
