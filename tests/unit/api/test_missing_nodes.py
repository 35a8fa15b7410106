"""A submit says which pods no node of the cluster can hold, and a diagnosis says what the nodes lack."""

from __future__ import annotations

import pytest

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Forbidden
from kfjob.joblog.events import JobChanged, JobPhase, PodChanged, PodPhase
from tests.fakes.backend import EmptyInventory
from tests.unit.api import script

SPEC = "name: big\nimage: a:1\nnodes: 2\nresources: {gpus: 8}\ncommand: [torchrun, train.py]\n"
RESOURCE = "nvidia.com/gpu"


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[JsonObject]]:
    """The objects of the fake cluster by resource; the user may not list the other resources."""
    found: dict[str, list[JsonObject]] = {}

    def list_objects(_self: EmptyInventory, _version: str, resource: str, **_: object) -> list[JsonObject]:
        if resource not in found:
            raise Forbidden(f"not allowed to list {resource}")
        return found[resource]

    def get_object(_self: EmptyInventory, _version: str, resource: str, name: str, **_: object) -> JsonObject | None:
        return next((item for item in found[resource] if item["metadata"]["name"] == name), None)

    monkeypatch.setattr(EmptyInventory, "list_objects", list_objects)
    monkeypatch.setattr(EmptyInventory, "get_object", get_object)
    return found


def node(gpus: int) -> JsonObject:
    allocatable = {RESOURCE: str(gpus), "cpu": "64", "memory": "256Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": f"gpu-{gpus}"}, "spec": {}, "status": {"conditions": ready, "allocatable": allocatable}}


def test_submit_says_that_no_node_has_as_many_gpus(fake, kfjob, here, objects):
    objects["nodes"] = [node(4)]
    (here / "big.yaml").write_text(SPEC)
    assert kfjob("submit", "big.yaml") == 0
    assert "warning: no node can hold pod `big-worker-0`\n  --> big.yaml:4:12 (resources)\n" in kfjob.err
    assert f"no node for 2 of 2 pods: of 1 node, 1 with 4 {RESOURCE} (8 requested)" in kfjob.err


def test_submit_says_which_claim_does_not_exist(fake, kfjob, here, objects):
    objects["persistentvolumeclaims"] = [{"metadata": {"name": "there"}}]
    volumes = "volumes: [{name: a, mount_path: /a, pvc: there}, {name: b, mount_path: /b, pvc: missing}]\n"
    (here / "big.yaml").write_text(SPEC + volumes)
    assert kfjob("submit", "big.yaml") == 0
    assert "warning: there is no claim `missing` in namespace `" in kfjob.err
    assert "(volumes.1)\nhint: its pods wait until it exists" in kfjob.err
    assert "`there`" not in kfjob.err


def test_submit_and_preflight_read_the_runtime_of_a_trainjob(fake, kfjob, here, objects):
    (here / "big.yaml").write_text("name: big\nimage: a:1\nruntime: torch\ncommand: [torchrun, train.py]\n")
    container = {"name": "node"}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": [container]}}}}
    jobs = {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}
    objects["clustertrainingruntimes"] = []
    problem = "error: there is no ClusterTrainingRuntime `torch`\n  --> big.yaml:3:10 (runtime)\n"
    assert kfjob("preflight", "big.yaml") == 1
    assert problem in kfjob.out
    assert kfjob("submit", "big.yaml") == 2
    assert problem in kfjob.err
    objects["clustertrainingruntimes"] = [
        {"metadata": {"name": "torch"}, "spec": {"mlPolicy": {"torch": {}}, "template": jobs}}
    ]
    kfjob("preflight", "big.yaml")
    assert "runtime `torch` found" in kfjob.out
    assert kfjob("submit", "big.yaml") == 0


def test_preflight_says_that_the_cluster_has_no_gang_scheduler(fake, kfjob, here, objects):
    (here / "big.yaml").write_text(SPEC + "scheduling: {gang: {scheduler: volcano}}\n")
    kfjob("preflight", "big.yaml")
    assert "error: the cluster does not have the gang scheduler `volcano`\n  --> big.yaml:6:" in kfjob.out


def test_submit_says_nothing_of_pods_that_fit_or_of_nodes_that_it_may_not_list(fake, kfjob, here, objects):
    (here / "big.yaml").write_text(SPEC)
    assert kfjob("submit", "big.yaml") == 0
    objects["nodes"] = [node(8), node(16)]
    assert kfjob("submit", "big.yaml", "--set", "name=big2") == 0
    assert "no node can hold" not in kfjob.err


@pytest.mark.parametrize(("gpus", "answer"), [
    (4, (f"1 with 4 {RESOURCE} (8 requested)", "waiting does not help")),
    (8, (f"1 with 2 {RESOURCE} free (8 requested)", "the pod starts when other pods have ended")),
])  # fmt: skip
def test_diagnosis_says_what_the_nodes_lack(fake, kfjob, objects, gpus: int, answer: tuple[str, str]):
    message = f"0/1 nodes are available: 1 Insufficient {RESOURCE}."
    waiting = PodChanged(pod="big-worker-0", phase=PodPhase.PENDING, reason="Unschedulable", message=message, time=script.START)
    fake.play("big", JobChanged(phase=JobPhase.PENDING, time=script.START), waiting)
    objects["nodes"] = [node(gpus)]
    requests = [{"name": "pytorch", "resources": {"limits": {RESOURCE: "8"}}}]
    other = {"nodeName": f"gpu-{gpus}", "containers": [{"resources": {"limits": {RESOURCE: str(gpus - 2)}}}]}
    objects["pods"] = [
        {"metadata": {"name": "big-worker-0"}, "spec": {"containers": requests}},
        {"metadata": {"name": "other"}, "spec": other},
    ]
    objects["pods"] = objects["pods"] if gpus == 8 else objects["pods"][:1]
    kfjob("diagnose", "big")
    assert f"  cause: no node for the pod: of 1 node, {answer[0]}\n" in kfjob.out
    assert f"hint: {answer[1]}" in kfjob.out
