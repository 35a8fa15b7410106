"""The test cluster: what scripts/cluster promises, on the cluster that the other tests use and without harm to them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.facts import ROOT, Space

SCRIPT = str(ROOT / "scripts" / "cluster")
MANIFESTS = ROOT / "manifests"
OLDER_API = "operator-1-7.kfjob.test/v1"  # tests/cluster/harness/settings.sh: the CRD of v1.7.0 under a group of its own


def script(*arguments: str, code: int = 0, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [SCRIPT, *arguments], env=os.environ | env, input=stdin, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, f"scripts/cluster {' '.join(arguments)} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def accepted(manifest: str, namespace: str) -> list[str]:
    """What the API server would make of it, with unknown fields refused."""
    said = script("kubectl", "-n", namespace, "create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=manifest)
    return said.stdout.splitlines()


def test_status_is_healthy_and_names_what_others_need():
    said = script("status").stdout
    assert " ill " not in said
    for wanted in ("kube-apiserver", "kubelet", "coredns", "training-operator", "/run/kfjob/site-packages"):
        assert wanted in said


def test_up_of_a_running_cluster_changes_nothing():
    before = script("status").stdout
    assert "already running" in script("up").stderr
    assert script("status").stdout == before


def test_a_second_cluster_is_refused_and_the_first_one_named(tmp_path):
    state, cache = str(tmp_path / "state"), str(tmp_path / "cache")
    said = script("up", code=1, KFJOB_CLUSTER_STATE=state, KFJOB_CLUSTER_CACHE=cache).stderr
    assert "another test cluster is on this machine (kfjob test cluster in " in said
    assert list(tmp_path.iterdir()) == []


def test_who_is_not_root_is_told_what_to_do():
    nobody = ["unshare", "--user", SCRIPT, "up"]  # another user id, and a checkout under /root can still be read
    done = subprocess.run(nobody, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error: the test cluster needs root" in done.stderr
    assert "sudo --preserve-env=HOME,PATH" in done.stderr


@pytest.mark.parametrize("arguments", [["bogus"], ["up", "--fake-nodes", "many"], ["kubeconfig", "--user", "king"]])
def test_wrong_arguments_are_one_message(arguments):
    said = script(*arguments, code=1).stderr
    assert said.startswith("error: ")
    assert "Traceback" not in said
    assert "failed at" not in said


def test_the_operator_is_the_one_that_manifests_install():
    wanted = re.search(r"\?ref=(v\S+)", (MANIFESTS / "operator" / "kustomization.yaml").read_text())
    assert wanted
    assert re.search(rf"^training-operator\s+-\s+ok\s+{re.escape(wanted[1])}$", script("status").stdout, re.MULTILINE)
    images = script("kubectl", "-n", "kubeflow", "get", "pods", "-o", "jsonpath={.items[*].spec.containers[*].image}").stdout
    assert images.startswith("ghcr.io/kubeflow/training-v1/training-operator:v1-")


def test_the_job_image_is_built_once():
    first = script("image")
    second = script("image")
    assert "up to date" in second.stderr
    assert first.stdout == second.stdout
    assert re.fullmatch(r"registry\.kfjob\.test/kfjob:[0-9a-f]{12}\n", second.stdout)


@pytest.mark.parametrize("path", sorted((MANIFESTS / "storage").glob("*.yaml")), ids=lambda path: path.stem)
def test_storage_examples_are_valid(space: Space, path: Path):
    assert len(accepted(path.read_text(), space.name)) == len(list(yaml.safe_load_all(path.read_text())))


NEWER = {  # goldens that ask, on purpose, for what came after v1.7.0
    "overrides": "spec.runPolicy.managedBy",
    "pod": "spec.pytorchReplicaSpecs.Worker.template.spec.initContainers[1].restartPolicy",  # a sidecar by Kubernetes 1.29
}
GOLDENS = sorted((ROOT / "tests/golden/manifests").glob("*.yaml"))


@pytest.mark.parametrize("path", [path for path in GOLDENS if path.stem not in NEWER], ids=lambda path: path.stem)
def test_jobs_fit_the_older_operator_too(space: Space, path: Path):
    """HyperPod's auto-resume needs v1.7.0, 1.8.0 or 1.8.1."""
    jobs = [found for found in yaml.safe_load_all(path.read_text()) if found["kind"] == "PyTorchJob"]
    assert jobs
    for job in jobs:
        job["apiVersion"], job["metadata"]["namespace"] = OLDER_API, space.name
        assert "created (server dry run)" in accepted(yaml.safe_dump(job), space.name)[0]


@pytest.mark.parametrize(("golden", "field"), NEWER.items(), ids=NEWER)
def test_the_older_operators_schema_refuses_what_it_does_not_know(space: Space, golden: str, field: str):
    """The test above can fail, and no job loses a field in silence."""
    job = next(iter(yaml.safe_load_all((ROOT / f"tests/golden/manifests/{golden}.yaml").read_text())))
    job["apiVersion"], job["metadata"]["namespace"] = OLDER_API, space.name
    command = ("kubectl", "-n", space.name, "create", "--dry-run=server", "--validate=strict", "-f", "-")
    assert f'unknown field "{field}"' in script(*command, code=1, stdin=yaml.safe_dump(job)).stderr


def test_rights_of_submitter_and_nobody(space: Space):
    def may(user: str, verb: str, resource: str, subresource: str = "") -> bool:
        kubeconfig = script("kubeconfig", "--user", user, "--namespace", space.name).stdout.strip()
        argv = [SCRIPT, "kubectl", "--kubeconfig", kubeconfig, "auth", "can-i", verb, resource]
        argv += ["--subresource", subresource] if subresource else []
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip() == "yes"

    assert may("submitter", "create", "pytorchjobs.kubeflow.org")
    assert may("submitter", "get", "pods", "log")
    assert not may("submitter", "get", "secrets")
    assert not may("submitter", "create", "pods", "exec")
    assert not may("submitter", "list", "nodes")
    assert not may("nobody", "list", "pods")


def test_logs_are_collected_in_one_folder(tmp_path):
    script("logs", str(tmp_path / "logs"))
    found = {path.name for path in (tmp_path / "logs").rglob("*") if path.is_file() and path.stat().st_size}
    assert {"kube-apiserver.log", "kubelet.log", "containerd.log", "describe.txt", "objects.yaml"} <= found


POD = """
import os, socket, time
import torch, kfjob
assert kfjob.__file__.startswith("/usr/"), kfjob.__file__  # from the image, not from the mounted packages
assert torch.__file__.startswith("/opt/host-site-packages/"), torch.__file__
assert os.getuid() != 0
open("mine", "w").close()  # the working directory is the user's own
address = socket.gethostbyname("kubernetes.default")  # a short name of a service in another namespace
with socket.create_connection((address, 443), timeout=5):  # a ClusterIP
    pass
begin = time.monotonic()
try:
    socket.gethostbyname("example.org")
    raise SystemExit("there is no world outside")
except socket.gaierror as error:
    assert error.errno == socket.EAI_NONAME, error
try:
    socket.create_connection(("192.0.2.1", 80), timeout=30).close()
    raise SystemExit("there is no way outside")
except OSError as error:
    assert not isinstance(error, TimeoutError), error
assert time.monotonic() - begin < 5
print("all is well", address)
"""


def test_a_pod_of_the_job_image_has_torch_services_and_no_world_outside(space: Space):
    site = space.facts.volumes[0]
    volume = {"name": "site", "hostPath": {"path": site["host_path"]}}
    mount = {"name": "site", "mountPath": site["mount_path"], "readOnly": True}
    container = {"name": "probe", "image": space.facts.image, "command": ["python3", "-c", POD], "volumeMounts": [mount]}
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": space.name}}
    pod["spec"] = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    script("kubectl", "create", "-f", "-", stdin=yaml.safe_dump(pod))
    end = "jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    script("kubectl", "-n", space.name, "wait", f"--for={end}", "pod/probe", "--timeout=120s")
    logs = script("kubectl", "-n", space.name, "logs", "probe").stdout
    assert "all is well 10.203.0.1" in logs, logs
