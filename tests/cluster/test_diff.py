"""`kfjob diff` against a live job on the real cluster; the job is suspended, so nothing runs."""

from __future__ import annotations

import json

import pytest

from kfjob.cluster import requests
from tests.cluster.shell import Shell
from tests.pytorchjobs import KIND

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


def test_each_change_shows_whether_apply_can_make_it(space, kfjob, name, tmp_path):
    (tmp_path / "job.yaml").write_text(f"name: {name}\n{SPEC}")

    def diff_changes(*options: str) -> dict[str, bool]:
        diff = json.loads(kfjob("diff", "job.yaml", *options, "-o", "json"))
        return {change["path"]: change["in_place"] for change in diff["changes"]}

    assert "there is no job" in kfjob("diff", "job.yaml", code=3)
    kfjob("submit", "job.yaml")
    assert diff_changes() == {}

    three_nodes = ("--set", "nodes=3")
    assert diff_changes(*three_nodes) == {f"{WORKER}.replicas": True}
    assert diff_changes("--set", "elastic.max=8") == {"spec.elasticPolicy.maxReplicas": False}
    assert diff_changes("--set", "run.ttl=60") == {"spec.runPolicy.ttlSecondsAfterFinished": True}
    assert diff_changes() == {}  # diff changes nothing
    kfjob("apply", "job.yaml", *three_nodes)
    assert diff_changes(*three_nodes) == {}
    assert set(diff_changes().values()) == {True}

    queued = ("--set", "scheduling.queue=gpus", "--set", "scheduling.queue_priority=high")
    label = "metadata.labels.kueue.x-k8s.io"
    assert diff_changes(*three_nodes, *queued) == {f"{label}/queue-name": True, f"{label}/priority-class": True}
    kfjob("apply", "job.yaml", *three_nodes, *queued)
    assert diff_changes(*three_nodes, *queued) == {}
    assert diff_changes(*three_nodes) == {f"{label}/queue-name": True, f"{label}/priority-class": True}
    kfjob("apply", "job.yaml", *three_nodes, *queued[:2])
    live = space.client.call(requests.get_job(KIND, space.name, name))
    assert "kueue.x-k8s.io/priority-class" not in live["metadata"]["labels"]  # apply removes what the spec no longer has
    assert live["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    kfjob("apply", "job.yaml", *three_nodes)

    limit = ("--set", "watchdog.deadline=600")  # no object shows it
    assert diff_changes(*three_nodes, *limit) == {"watchdog.deadline": True}
    four_nodes = ("--set", "nodes=4")
    assert diff_changes(*four_nodes, *limit) == {f"{WORKER}.replicas": True, "watchdog.deadline": True}
    kfjob("apply", "job.yaml", *three_nodes, *limit)
    assert diff_changes(*three_nodes, *limit) == {}
    assert diff_changes(*three_nodes) == {"watchdog.deadline": True}
    kfjob("apply", "job.yaml", *three_nodes)

    image = ("--set", "image=a:2", "--set", "env.A=1")
    image_changes = diff_changes(*three_nodes, *image)
    container = f"{WORKER}.template.spec.containers[pytorch]"
    assert image_changes == {f"{container}.image": False, f"{container}.env[A]": False}
    assert "cannot change while it exists" in kfjob("apply", "job.yaml", *three_nodes, *image, code=1)
    assert "needs a new launch" in kfjob("diff", "job.yaml", *three_nodes, *image)

    kfjob("stop", name)


def test_diff_includes_the_jobs_own_etcd(kfjob, name, tmp_path):
    (tmp_path / "job.yaml").write_text(f"name: {name}\n{SPEC}rendezvous: etcd\n")
    kfjob("submit", "job.yaml")
    assert json.loads(kfjob("diff", "job.yaml", "-o", "json"))["changes"] == []
    (tmp_path / "kfjob.toml").write_text('etcd_image = "registry.kfjob.test/etcd:3.4.99"\n')
    (change,) = json.loads(kfjob("diff", "job.yaml", "-o", "json"))["changes"]
    assert (change["path"], change["desired"]) == (
        f"Pod/{name}-etcd: spec.containers[etcd].image",
        "registry.kfjob.test/etcd:3.4.99",
    )
    assert not change["in_place"]
    kfjob("stop", name)
