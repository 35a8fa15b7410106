"""A PyTorchJob that the API server or the operator refuses has a problem for each reason, at the right field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kfjob.kinds.pytorchjob.admission import find_job_problems
from kfjob.objects.merge import merge

WORKER = ("spec", "pytorchReplicaSpecs", "Worker")
MASTER = ("spec", "pytorchReplicaSpecs", "Master")
POD = {"spec": {"containers": [{"name": "pytorch", "image": "a:1"}]}}
JOB: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "train"},
    "spec": {"pytorchReplicaSpecs": {"Master": {"template": POD}, "Worker": {"replicas": 2, "template": POD}}},
}


def copy() -> Any:
    return json.loads(json.dumps(JOB))


def change(**parts):
    return merge(copy(), parts)


def replicas(**kinds):
    return change(spec={"pytorchReplicaSpecs": kinds})


@pytest.mark.parametrize(
    ("job", "path", "title"),
    [
        (change(metadata={"name": "llama2_13b"}), ("metadata", "name"), "`llama2_13b` cannot be the name of a PyTorchJob"),
        (change(metadata={"name": "a" * 60}), ("metadata", "name"), "would have 69 characters"),
        (change(metadata={"labels": {"a": 1}}), ("metadata", "labels", "a"), "`metadata.labels.a` must be text"),
        (replicas(Worker={"replicas": "$N"}), (*WORKER, "replicas"), "must be a whole number"),
        (replicas(Worker={"replicas": 0}), (*WORKER, "replicas"), "needs at least 1 replica"),
        (replicas(Master={"replicas": 2}), (*MASTER, "replicas"), "a job has one Master, this has 2"),
        (replicas(Launcher={"template": POD}), (*WORKER[:2], "Launcher"), "there is no replica type `Launcher`"),
        (replicas(Worker=None, Master=None), WORKER[:2], "neither a `Worker` nor a `Master`"),
        (change(spec={"elasticPolicy": {}, "pytorchReplicaSpecs": {"Worker": None}}), ("spec", "elasticPolicy"), "needs a `W"),
        (change(spec={"cleanPodPolicy": "None"}), ("spec", "cleanPodPolicy"), "did you mean `runPolicy.cleanPodPolicy`?"),
        (change(spec={"runPolicy": {"cleanPodPolice": "None"}}), ("spec", "runPolicy", "cleanPodPolice"), "did you mean"),
        (change(apiVersion="kubeflow.org/v1beta2"), ("apiVersion",), "does not serve a PyTorchJob of `kubeflow.org/v1beta2`"),
        (
            change(metadata={"labels": {"a": "two words"}}),
            ("metadata", "labels", "a"),
            "`two words` is not a valid",
        ),
        (
            change(spec={"nprocPerNode": "8", "elasticPolicy": {"nProcPerNode": 8}}),
            ("spec", "elasticPolicy", "nProcPerNode"),
            "together with `nprocPerNode`",
        ),
        (
            change(spec={"runPolicy": {"managedBy": "team/me"}}),
            ("spec", "runPolicy", "managedBy"),
            "`managedBy` cannot be `team/me`",
        ),
        (
            replicas(Worker={"template": {"spec": {"containers": [*POD["spec"]["containers"], {"name": "log"}]}}}),
            (*WORKER, "template", "spec", "containers", 1, "image"),
            "the container `log` of the Worker has no image",
        ),
        (
            replicas(Worker={"template": {"spec": {"initContainers": [{"name": "first"}]}}}),
            (*WORKER, "template", "spec", "initContainers", 0, "image"),
            "the container `first` of the Worker has no image",
        ),
        (change(metadata={"namespace": "A_b"}), ("metadata", "namespace"), "cannot be the name of a namespace"),
        (replicas(Worker={"restartPolicy": "never"}), (*WORKER, "restartPolicy"), "is not a value of `restartPolicy`"),
        (change(spec={"nprocPerNode": "foo"}), ("spec", "nprocPerNode"), "must be a number, `auto`, `gpu` or `cpu`"),
        (
            change(spec={"elasticPolicy": {"rdzvBackend": "foo"}}),
            ("spec", "elasticPolicy", "rdzvBackend"),
            "`foo` is not a value of `rdzvBackend`",
        ),
    ],
)
def test_each_reason_is_a_problem(job, path, title):
    (problem,) = find_job_problems(job)
    assert problem.path == path
    assert title in problem.title


def test_job_without_a_container_for_the_operator():
    job = copy()
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"] = [{"name": "trainer", "image": "a:1"}]
    (problem,) = find_job_problems(job)
    assert problem.path == (*WORKER, "template", "spec", "containers", 0, "name")
    assert problem.hint == "rename `trainer` to `pytorch`"


def test_complete_job_has_no_problem():
    assert find_job_problems(JOB) == []


def test_fraction_without_quotes_has_a_hint():
    """The API server answers "must be of type integer,string", although it reads the same number in a Pod."""
    job = copy()
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": 0.5}}
    (problem,) = find_job_problems(job)
    assert problem.path[-1] == "cpu"
    assert problem.hint == "put the number in quotes"
