"""A manifest template on the real cluster: submit, wait, relaunch and stop."""

from __future__ import annotations

import json

import pytest

from kfjob.base.errors import NotFound
from kfjob.cluster import requests
from tests.cluster.facts import ROOT, Space
from tests.cluster.shell import Shell
from tests.pytorchjobs import KIND

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


@pytest.mark.long  # in CI test_reference_template does the same with the published template
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
    relaunched = space.client.call(requests.get_job(KIND, space.name, name))
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
