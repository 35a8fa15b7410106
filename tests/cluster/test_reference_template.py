"""A template in the style of the reference flow on the real cluster: bare names, and an etcd Deployment of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cluster.facts import IN_POD, Space
from tests.cluster.shell import Shell

TEMPLATE = """
apiVersion: v1
kind: Service
metadata: {name: etcd}
spec: {selector: {app: etcd}, ports: [{name: etcd-client-port, port: 2379, targetPort: 2379}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: etcd, labels: {app: etcd}}
spec:
  replicas: 1
  selector: {matchLabels: {app: etcd}}
  template:
    metadata: {labels: {app: etcd}}
    spec:
      containers:
      - name: etcd
        image: $ETCD_IMAGE
        command: [etcd, --data-dir=/tmp/etcd, --enable-v2, --listen-client-urls=http://0.0.0.0:2379,
          --advertise-client-urls=http://etcd:2379]
        ports: [{containerPort: 2379}]
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: fsdp}
spec:
  elasticPolicy: {rdzvBackend: etcd, rdzvHost: etcd, rdzvPort: 2379, minReplicas: 1, maxReplicas: 64, maxRestarts: 9}
  pytorchReplicaSpecs:
    Worker:
      replicas: $NUM_NODES
      restartPolicy: OnFailure
      template:
        metadata: {labels: {app: fsdp}}
        spec:
          containers:
          - name: pytorch
            image: ${IMAGE_URI}
            env: [{name: LOGLEVEL, value: INFO}, {name: FI_PROVIDER, value: $FI_PROVIDER}]
            command: [bash, -c, "until python3 -c 'import socket; socket.create_connection((\\"etcd\\", 2379), 5)'; do sleep 1;
              done; exec torchrun --start-method=fork --nproc_per_node=$GPU_PER_NODE --nnodes=$NUM_NODES --run-path
              /programs/reduce.py"]
            volumeMounts: @MOUNTS
          volumes: @VOLUMES
"""


def write_template(space: Space, folder: Path) -> None:
    """Write the template with this cluster's torch and a program, and its values, as the reference exports them."""
    volumes: list[object] = [{"name": "programs", "configMap": {"name": "programs"}}]
    mounts: list[object] = [{"name": "programs", "mountPath": IN_POD}]
    for volume in space.facts.volumes:
        volumes.append({"name": volume["name"], "hostPath": {"path": volume["host_path"]}})
        mounts.append({"name": volume["name"], "mountPath": volume["mount_path"], "readOnly": True})
    text = TEMPLATE.replace("@MOUNTS", json.dumps(mounts)).replace("@VOLUMES", json.dumps(volumes))
    (folder / "fsdp.yaml-template").write_text(text)
    values = f"export IMAGE_URI={space.facts.image}\nexport ETCD_IMAGE={space.facts.etcd_image}\nexport NUM_NODES=2\n"
    values += "export GPU_PER_NODE=1\nexport FI_PROVIDER=\n"
    (folder / ".env").write_text(values)


def read_batches(log: str) -> list[int]:
    return [int(number) for number in re.findall(r"\] Batch (\d+) Loss: ", log)]


def test_reference_template_is_submitted_followed_and_stopped_twice(space: Space, tmp_path: Path):
    kfjob, submit = Shell(space, tmp_path), ("submit", "--template", "fsdp.yaml-template", "--env-file", ".env")
    write_template(space, tmp_path)
    assert kfjob(*submit) == "fsdp\n"
    assert read_batches(kfjob("logs", "fsdp", "-f")) == [1, 2, 3]
    master = kfjob("master", "fsdp", "-o", "name").strip().removeprefix("pod/")
    assert f"master_addr={master}" in kfjob("logs", "fsdp", "--agents")
    names = [line.split()[0] for line in kfjob("status", "fsdp").splitlines() if re.match(r"(etcd|fsdp)-", line)]
    assert names[0].startswith("etcd-")
    assert names[1:] == ["fsdp-worker-0", "fsdp-worker-1"]
    assert kfjob("wait", "fsdp", "--timeout", "100") == "Succeeded\n"

    assert kfjob("stop", "fsdp") == "fsdp\n"  # while it is Completed
    assert kfjob(*submit, "--var", "NUM_NODES=1") == "fsdp\n"
    assert kfjob("wait", "fsdp", "--timeout", "200") == "Succeeded\n"
    assert "world 1" in kfjob("logs", "fsdp")
    assert kfjob("stop", "fsdp") == "fsdp\n"
