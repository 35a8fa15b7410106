"""A manifest template on the real cluster: submit, wait, relaunch and stop."""

from __future__ import annotations

import json

import pytest

from kfjob.backends.kubernetes import requests
from kfjob.errors import NotFound
from tests.cluster.facts import ROOT, Space
from tests.cluster.shell import Shell

TEMPLATE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: "${JOB}-settings"}
data: {who: "$WHO"}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: "${JOB}"}
spec:
  nprocPerNode: "1"
  elasticPolicy: {rdzvBackend: c10d, rdzvId: "${KFJOB_LAUNCH}", minReplicas: ${NUM_NODES}, maxReplicas: ${NUM_NODES}}
  pytorchReplicaSpecs:
    Worker:
      replicas: ${NUM_NODES}
      restartPolicy: Never
      template:
        spec:
          containers:
          - name: pytorch
            image: ${IMAGE_URI}
            command: [sh, -c, "echo I am $HOSTNAME; exec torchrun /programs/reduce.py"]
            env: [{name: LOGLEVEL, value: INFO}]
            volumeMounts: @MOUNTS
          volumes: @VOLUMES
"""


@pytest.fixture
def kfjob(space, tmp_path) -> Shell:
    return Shell(space, tmp_path)


def template_for(space: Space) -> str:
    """Return the template with the volumes of this cluster: programs, and torch from the node."""
    volumes: list[object] = [{"name": "programs", "configMap": {"name": "programs"}}]
    mounts: list[object] = [{"name": "programs", "mountPath": "/programs"}]
    for volume in space.facts.volumes:
        volumes.append({"name": volume["name"], "hostPath": {"path": volume["host_path"]}})
        mounts.append({"name": volume["name"], "mountPath": volume["mount_path"], "readOnly": True})
    return TEMPLATE.replace("@MOUNTS", json.dumps(mounts)).replace("@VOLUMES", json.dumps(volumes))


def test_template_is_submitted_relaunched_and_stopped(space, name, kfjob, tmp_path):
    (tmp_path / "t.yaml").write_text(template_for(space))
    (tmp_path / ".env").write_text(f"export JOB={name}\nNUM_NODES=2\nIMAGE_URI={space.facts.image}\nWHO='a: b # c'\n")
    template = ("--template", "t.yaml", "--env-file", ".env")
    assert kfjob("submit", *template, "--dry-run", "server") == f"{name}\n"
    assert kfjob("list", "-o", "json") == "[]\n"
    assert json.loads(kfjob("submit", *template, "-o", "json"))["namespace"] == space.name
    settings = requests.get("configmaps", space.name, f"{name}-settings")
    assert space.client.call(settings)["data"] == {"who": "a: b # c"}
    assert "already" in kfjob("submit", *template, code=1)
    assert kfjob("wait", name, "--timeout", "200") == "Succeeded\n"
    assert kfjob("master", name, "-o", "name") == f"pod/{name}-worker-0\n"
    assert f"I am {name}-worker-1" in kfjob("logs", name, "--pod", f"{name}-worker-1")
    assert [pod["phase"] for pod in json.loads(kfjob("status", name, "-o", "json"))["pods"]] == ["Succeeded"] * 2

    first_launch = json.loads(kfjob("list", "-o", "json"))[0]["launch"]
    (tmp_path / "t.yaml").unlink()  # relaunch needs only the record
    assert kfjob("relaunch", name) == f"{name}\n"
    relaunched = space.client.call(requests.get("pytorchjobs", space.name, name))
    assert relaunched["metadata"]["labels"]["kfjob.dev/launch"] == relaunched["spec"]["elasticPolicy"]["rdzvId"] != first_launch
    assert space.client.call(settings)["data"] == {"who": "a: b # c"}
    assert kfjob("wait", name, "--timeout", "200") == "Succeeded\n"
    assert kfjob("stop", name) == f"{name}\n"
    with pytest.raises(NotFound):  # the job owned it
        space.client.call(settings)


def test_api_server_accepts_the_projects_template(kfjob):
    folder = ROOT / "manifests"
    dry = ("--template", str(folder / "fsdp.yaml-template"), "--env-file", str(folder / "fsdp.env"), "--dry-run", "server")
    assert kfjob("submit", *dry) == "fsdp\n"
    assert "replicas" in kfjob("submit", *dry, "--var", "NUM_NODES=many", code=1)
