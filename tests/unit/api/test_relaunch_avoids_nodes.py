"""`kfjob relaunch --avoid-node`: the new launch stays away from a node, and only this launch."""

from __future__ import annotations

from kfjob.joblog.events import JobPhase
from kfjob.kinds.registry import get_job
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.api.conftest import Shell


def read_expressions(fake: FakeBackend) -> list[dict[str, object]]:
    """Return the fields that the nodes of the newest launch must match."""
    pod = get_job(fake.objects)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    terms = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return [field for term in terms.get("nodeSelectorTerms", []) for field in term.get("matchFields", [])]


def test_node_is_avoided_by_this_launch_only(fake: FakeBackend, kfjob: Shell):
    fake.play("train", script.job(JobPhase.FAILED), spec=script.SPEC)
    assert kfjob("relaunch", "train", "--avoid-node", "node-7", "--avoid-node", "node-8") == 0
    assert [field["values"] for field in read_expressions(fake)] == [["node-7"], ["node-8"]]
    fake.objects.clear()
    assert kfjob("relaunch", "train") == 0
    assert read_expressions(fake) == []


def test_node_that_does_not_exist_is_a_warning(fake: FakeBackend, kfjob: Shell):
    fake.play("train", script.job(JobPhase.FAILED), spec=script.SPEC)
    assert kfjob("relaunch", "train", "--avoid-node", "node-7") == 0
    assert "warning: the cluster has no node `node-7` to avoid" in kfjob.err


def test_machine_has_no_node_to_avoid(on_machine: FakeBackend, kfjob: Shell):
    on_machine.play("train", script.job(JobPhase.FAILED), spec=script.SPEC)
    assert kfjob("relaunch", "train", "--backend", "local", "--avoid-node", "node-7") == 2
    assert ("stop", "train") not in on_machine.calls
