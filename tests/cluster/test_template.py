"""Manifest templates on the real cluster: dry runs, and the objects beside the job."""

from __future__ import annotations

import json

import pytest

from kfjob.base.errors import NotFound
from kfjob.cluster import requests
from tests.cluster.facts import ROOT
from tests.cluster.shell import Shell


@pytest.fixture
def kfjob(space, tmp_path) -> Shell:
    return Shell(space, tmp_path)


def test_api_server_accepts_the_projects_template(kfjob):
    folder = ROOT / "manifests"
    dry = ("--template", str(folder / "fsdp.yaml-template"), "--env-file", str(folder / "fsdp.env"), "--dry-run", "server")
    assert kfjob("submit", *dry) == "fsdp\n"
    assert "Worker.replicas` must be a whole number" in kfjob("submit", *dry, "--var", "NUM_NODES=many", code=2)


OTHERS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: "${JOB}-settings"}
data: {who: "$WHO", old: x}
---
apiVersion: v1
kind: Service
metadata: {name: "${JOB}-extra"}
spec: {selector: {app: "${JOB}"}, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: "${JOB}-data"}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Secret
metadata: {generateName: "${JOB}-key-"}
stringData: {key: value}
"""
SUSPENDED = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: "${JOB}", namespace: "${SPACE}"}
spec:
  runPolicy: {suspend: true}
  elasticPolicy: {rdzvBackend: c10d, rdzvId: "${KFJOB_LAUNCH}", minReplicas: 1, maxReplicas: 4}
  pytorchReplicaSpecs:
    Worker:
      replicas: ${NUM_NODES}
      template:
        spec: {containers: [{name: pytorch, image: "${IMAGE_URI}", command: [torchrun, train.py]}]}
"""


def test_other_objects_are_changed_with_the_job_and_only_its_own_are_removed(space, name, kfjob, tmp_path):
    (tmp_path / "others.yaml").write_text(OTHERS)
    (tmp_path / "job.yaml").write_text(SUSPENDED)
    (tmp_path / "before.yaml").write_text(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}-before}}\ndata: {{a: b}}\n"
    )
    values = ("--var", f"JOB={name}", "--var", f"IMAGE_URI={space.facts.image}", "--var", f"SPACE={space.name}")
    files = ("--template", "others.yaml", "--template", "job.yaml", "--template", "before.yaml", *values)
    before = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-before", "namespace": space.name}}
    space.client.call(requests.create(before))
    first = (*files, "--var", "NUM_NODES=2", "--var", "WHO=me")
    assert kfjob("submit", *first) == f"{name}\n"
    assert kfjob("diff", *first) == ""

    (tmp_path / "others.yaml").write_text(OTHERS.replace(", old: x", ""))
    second = (*files, "--var", "NUM_NODES=3", "--var", "WHO=you")
    changes = json.loads(kfjob("diff", *second, "-o", "json"))["changes"]
    assert {(change["path"], change["desired"]) for change in changes} == {
        ("spec.pytorchReplicaSpecs.Worker.replicas", 3),
        (f"ConfigMap/{name}-settings: data.who", "you"),
        (f"ConfigMap/{name}-settings: data.old", None),
    }
    assert kfjob("apply", *second) == f"{name}\n"
    assert kfjob("diff", *second) == ""
    settings = space.client.call(requests.get("configmaps", space.name, f"{name}-settings"))
    assert settings["data"] == {"who": "you"}
    (tmp_path / "job.yaml").write_text(SUSPENDED.replace("train.py", "other.py"))
    assert "cannot change while it exists" in kfjob("apply", *files, "--var", "NUM_NODES=2", "--var", "WHO=me", code=1)
    assert space.client.call(requests.get("configmaps", space.name, f"{name}-settings"))["data"] == {"who": "you"}

    assert kfjob("stop", name, "--no-archive") == f"{name}\n"
    for resource, suffix in (("configmaps", "settings"), ("services", "extra")):
        with pytest.raises(NotFound):
            space.client.call(requests.get(resource, space.name, f"{name}-{suffix}"))
    secrets = space.client.call(requests.Selection(resource="secrets", namespace=space.name).list_request())["items"]
    assert [secret for secret in secrets if secret["metadata"]["name"].startswith(f"{name}-key-")] == []
    assert space.client.call(requests.get("configmaps", space.name, f"{name}-before"))
    assert space.client.call(requests.get("persistentvolumeclaims", space.name, f"{name}-data"))
