"""Lists whose order has a meaning: containers, init containers with sidecars among them, and variables that name others."""

from __future__ import annotations

import pytest
import yaml

from kfjob.api.specs.imports import import_manifest
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec

CONTEXT = Context(backend="kubernetes", launch="l1", namespace="team")
FIRST, SECOND = {"name": "i1", "image": "a:1"}, {"name": "i2", "image": "a:1"}
SIDECAR = {"name": "side", "image": "b:1", "restartPolicy": "Always"}
UNKNOWN = {"name": "M", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "f", "key": "k"}}}
USER = {"name": "X", "value": "--memory=$(M)"}


def convert(container=None, *, master=False, **pod):
    """Return the conversion, and the spec of the pods that the imported spec makes."""
    own = {"name": "pytorch", "image": "c:1", "command": ["torchrun", "t.py"]} | (container or {})
    containers = [*pod.pop("before", []), own, *pod.pop("after", [])]
    replica = {"restartPolicy": "OnFailure", "template": {"spec": {"containers": containers, **pod}}}
    replicas = {"Master": replica, "Worker": replica} if master else {"Worker": replica}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "demo"}}
    conversion = import_manifest(yaml.safe_dump(job | {"spec": {"pytorchReplicaSpecs": replicas}}))
    compiled = compile_pytorchjob(resolve(JobSpec.model_validate(conversion.spec), CONTEXT))
    return conversion, compiled["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]


def list_env(pod):
    return pod["containers"][0]["env"]


def list_moves(conversion):
    return [note.reason for note in conversion.notes if "order" in note.reason or " stands " in note.reason]


@pytest.mark.parametrize(
    ("given", "sidecars"),
    [
        ([FIRST, SIDECAR, SECOND], []),
        ([SIDECAR, FIRST], []),
        ([FIRST, SECOND, SIDECAR], ["side"]),
        ([SIDECAR, FIRST, SIDECAR | {"name": "s2"}, SIDECAR | {"name": "s1"}], ["s2", "s1"]),
    ],
)
def test_sidecar_stays_before_the_init_containers_that_follow_it(given, sidecars):
    conversion, pod = convert(initContainers=given)
    assert pod["initContainers"] == given
    assert [container["name"] for container in conversion.spec["pod"].get("sidecars", [])] == sidecars
    assert list_moves(conversion) == []


def test_containers_keep_their_order():
    conversion, pod = convert(before=[{"name": "s1", "image": "b:1"}], after=[{"name": "s2", "image": "b:1"}])
    assert [container["name"] for container in pod["containers"]] == ["s1", "pytorch", "s2"]
    assert list_moves(conversion) == []
    replica = conversion.spec["overrides"]["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert replica["template"]["spec"]["containers"][1] == {"name": "pytorch"}
    conversion, pod = convert(after=[{"name": "s2", "image": "b:1"}])
    assert [container["name"] for container in pod["containers"]] == ["pytorch", "s2"]
    assert "'name': 'pytorch'" not in str(conversion.spec["overrides"])


@pytest.mark.parametrize(
    "reference",
    [
        {"resource": "limits.memory"},
        {"resource": "limits.memory", "divisor": "0"},
        {"resource": "limits.memory", "divisor": "1Mi"},
        {"containerName": "pytorch", "resource": "requests.cpu", "divisor": 1},
    ],
)
def test_variable_of_a_resource_keeps_its_place(reference):
    env = [{"name": "A", "value": "b"}, {"name": "M", "valueFrom": {"resourceFieldRef": reference}}, USER]
    conversion, pod = convert({"env": env})
    own = [variable for variable in list_env(pod) if variable["name"] in "AMX"]
    texts = {key: str(value) for key, value in reference.items() if value != "0"}
    assert own == [env[0], {"name": "M", "valueFrom": {"resourceFieldRef": texts}}, USER]
    assert list_moves(conversion) == []
    assert "overrides" not in conversion.spec


def test_variable_that_stands_too_late_has_a_note():
    conversion, pod = convert({"env": [UNKNOWN, USER, {"name": "B", "value": "$$(M) $(Z)"}]})
    names = [variable["name"] for variable in list_env(pod)]
    assert names.index("X") < names.index("M")
    assert list_moves(conversion) == ["`$(M)` in it stays as text, because `M` stands after it now"]


@pytest.mark.parametrize("text", ["$(PET_MAX_RESTARTS)", "--restarts=$(PET_MAX_RESTARTS)"])
def test_number_of_restarts_that_a_variable_names_keeps_its_place(text):
    env = [{"name": "X", "value": text}, {"name": "PET_MAX_RESTARTS", "value": "3"}]
    conversion, pod = convert({"env": env}, master=True)
    names = [variable["name"] for variable in list_env(pod)]
    assert names.index("X") < names.index("PET_MAX_RESTARTS")
    assert list_moves(conversion) == []


def test_number_of_restarts_that_no_variable_names_is_a_field():
    conversion, _ = convert({"env": [{"name": "PET_MAX_RESTARTS", "value": "4"}]}, master=True)
    assert conversion.spec["restarts"]["max"] == 4
