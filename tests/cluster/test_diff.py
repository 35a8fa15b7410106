"""diff, against a live job of the real cluster; the job is suspended, so that nothing runs."""

from __future__ import annotations

import json

import pytest

from kfjob.backends.kubernetes import requests
from tests.cluster.shell import Shell

SPEC = """\
image: a:1
nodes: 2
elastic: {min: 1, max: 4}
instance: p4d.24xlarge
run: {suspend: true}
command: torchrun train.py
"""
WORKER = "spec.pytorchReplicaSpecs.Worker"


@pytest.fixture
def kfjob(space, tmp_path) -> Shell:
    return Shell(space, tmp_path)


def test_every_change_is_labelled_as_apply_and_relaunch_see_it(space, kfjob, name, tmp_path):
    (tmp_path / "job.yaml").write_text(f"name: {name}\n{SPEC}")

    def changes(*more: str) -> dict[str, bool]:
        said = json.loads(kfjob("diff", "job.yaml", *more, "-o", "json"))
        return {one["path"]: one["in_place"] for one in said["changes"]}

    assert "there is no job" in kfjob("diff", "job.yaml", code=3)
    kfjob("submit", "job.yaml")
    assert changes() == {}

    more = ("--set", "nodes=3")
    assert changes(*more) == {f"{WORKER}.replicas": True}
    assert changes("--set", "elastic.max=8") == {"spec.elasticPolicy.maxReplicas": False}
    assert changes("--set", "run.ttl=60") == {"spec.runPolicy.ttlSecondsAfterFinished": True}
    assert changes() == {}  # nothing was changed
    kfjob("apply", "job.yaml", *more)
    assert changes(*more) == {}
    assert set(changes().values()) == {True}

    queued = ("--set", "scheduling.queue=gpus", "--set", "scheduling.queue_priority=high")
    label = "metadata.labels.kueue.x-k8s.io"
    assert changes(*more, *queued) == {f"{label}/queue-name": True, f"{label}/priority-class": True}
    kfjob("apply", "job.yaml", *more, *queued)
    assert changes(*more, *queued) == {}
    assert changes(*more) == {f"{label}/queue-name": True, f"{label}/priority-class": True}
    kfjob("apply", "job.yaml", *more, *queued[:2])
    live = space.client.call(requests.get("pytorchjobs", space.name, name))
    assert "kueue.x-k8s.io/priority-class" not in live["metadata"]["labels"]  # what was taken out of the spec is gone
    assert live["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    kfjob("apply", "job.yaml", *more)

    image = ("--set", "image=a:2", "--set", "env.A=1")
    found = changes(*more, *image)
    container = f"{WORKER}.template.spec.containers[pytorch]"
    assert found == {f"{container}.image": False, f"{container}.env[A]": False}
    assert "cannot change while it exists" in kfjob("apply", "job.yaml", *more, *image, code=1)
    assert "needs a new launch" in kfjob("diff", "job.yaml", *more, *image)

    kfjob("stop", name)


def test_the_jobs_own_etcd_is_compared_too(kfjob, name, tmp_path):
    (tmp_path / "job.yaml").write_text(f"name: {name}\n{SPEC}rendezvous: etcd\n")
    kfjob("submit", "job.yaml")
    assert json.loads(kfjob("diff", "job.yaml", "-o", "json"))["changes"] == []
    (tmp_path / "kfjob.toml").write_text('etcd_image = "registry.kfjob.test/etcd:3.4.99"\n')
    (change,) = json.loads(kfjob("diff", "job.yaml", "-o", "json"))["changes"]
    assert (change["path"], change["wanted"]) == (f"{name}-etcd.image", "registry.kfjob.test/etcd:3.4.99")
    assert not change["in_place"]
    kfjob("stop", name)
