"""Specs to and from the models of the kubeflow-training SDK."""

from __future__ import annotations

import pytest

import kfjob
from kfjob.base.errors import SpecError, UsageError
from kfjob.spec.job import JobSpec
from tests.missing_packages import run_without

SPEC = {"name": "llama", "image": "registry.test/llama:7", "nodes": 2, "command": "torchrun train.py"}
METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
pytestmark = [
    pytest.mark.usefixtures("here"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the SDK's generated models
]


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({**SPEC, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"elastic": {"min": 1, "max": 4, "metrics": [METRIC]}},
        {"launcher": "python", "command": "train.py"},
        {"overrides": {"spec": {"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}}},
    ],
)
def test_spec_survives_the_round_trip(fields):
    original = spec(**fields, namespace="team")
    assert kfjob.from_pytorchjob(kfjob.to_pytorchjob(original)) == original


def test_model_is_what_submit_creates():
    job = kfjob.to_pytorchjob(spec(), namespace="team", launch="20261121-083000-gold")
    assert type(job).__name__ == "KubeflowOrgV1PyTorchJob"
    assert (job.metadata.name, job.metadata.namespace) == ("llama", "team")
    assert job.metadata.labels["kfjob.dev/launch"] == "20261121-083000-gold"
    assert job.spec.pytorch_replica_specs["Worker"].replicas == 2


def test_namespace_is_that_of_the_kubeconfig():
    assert kfjob.to_pytorchjob(spec()).metadata.namespace == "default"


def test_own_etcd_is_an_error():
    with pytest.raises(UsageError, match="job `llama` needs its own etcd"):
        kfjob.to_pytorchjob(spec(rendezvous="etcd"))


def test_spec_without_image_is_an_error():
    with pytest.raises(SpecError, match="`image` is missing"):
        kfjob.to_pytorchjob(spec(image=None))


def test_model_of_another_author_becomes_a_spec():
    from kubeflow.training import models
    from kubernetes.client import V1Container, V1ObjectMeta, V1PodSpec, V1PodTemplateSpec

    container = V1Container(name="pytorch", image="registry.test/a:1", command=["torchrun", "a.py"], tty=True)
    template = V1PodTemplateSpec(spec=V1PodSpec(containers=[container]))
    worker = models.KubeflowOrgV1ReplicaSpec(replicas=3, restart_policy="Never", template=template)
    job = models.KubeflowOrgV1PyTorchJob(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=V1ObjectMeta(name="a"),
        spec=models.KubeflowOrgV1PyTorchJobSpec(
            run_policy=models.KubeflowOrgV1RunPolicy(clean_pod_policy="None"),
            elastic_policy=models.KubeflowOrgV1ElasticPolicy(rdzv_backend="c10d", rdzv_id="x"),
            pytorch_replica_specs={"Worker": worker},
        ),
    )
    notes: list[str] = []
    restored = kfjob.from_pytorchjob(job, notify=notes.append)
    assert (restored.name, restored.nodes, restored.command) == ("a", 3, ("torchrun", "a.py"))
    assert "tty" in str(restored.overrides)
    assert any(note.startswith("`spec.elasticPolicy.rdzvId: x`") for note in notes)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({}, "this is not a Kubernetes object"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, "this is a Pod, not a PyTorchJob"),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {}}, "this PyTorchJob has no `metadata.name`"),
    ],
)
def test_other_objects_are_errors(manifest, message):
    with pytest.raises(SpecError, match=message):
        kfjob.from_pytorchjob(manifest)


def test_missing_extra_is_an_error_with_a_hint():
    program = """
from kfjob import JobSpec, to_pytorchjob
from kfjob.base.errors import UsageError
try:
    to_pytorchjob(JobSpec(name="llama", image="registry.test/llama:7", command="torchrun train.py"))
except UsageError as err:
    print(err)
"""
    process = run_without(["kubeflow"], program)
    assert process.stdout.startswith("error: the package `kubeflow-training` is not installed\n"), process.stderr
    assert process.stdout.endswith("hint: in a checkout of kfjob, run `uv pip install --editable '.[sdk]'`\n")


def test_every_module_of_the_core_works_without_the_extra():
    program = """
import pkgutil
from importlib import import_module
import kfjob
for module in pkgutil.walk_packages(kfjob.__path__, "kfjob."):
    if not module.name.startswith("kfjob.trainer") and not module.name.endswith("__main__"):
        import_module(module.name)
"""
    process = run_without(["kubeflow"], program)
    assert process.returncode == 0, process.stderr
