"""Test scripts/cluster on the cluster that the other tests use, without effect on them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.facts import ROOT, Space

SCRIPT = str(ROOT / "scripts" / "cluster")
MANIFESTS = ROOT / "manifests"
OLDER_OPERATORS = ("operator-1-7", "operator-1-9-3")  # tests/cluster/harness/settings.sh: each CRD has its own API group


def script(*arguments: str, code: int = 0, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [SCRIPT, *arguments], env=os.environ | env, input=stdin, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == code, (
        f"scripts/cluster {' '.join(arguments)} -> {result.returncode}\n{result.stdout}\n{result.stderr}"
    )
    return result


def validate_on_server(manifest: str, namespace: str, *, code: int = 0) -> str:
    """Return the output, or the errors, of a strict server-side dry run, which refuses unknown fields."""
    words = ("kubectl", "-n", namespace, "create", "--dry-run=server", "--validate=strict", "-f", "-")
    result = script(*words, code=code, stdin=manifest)
    return result.stderr if code else result.stdout


def test_status_is_healthy_and_lists_the_components():
    output = script("status").stdout
    assert " unhealthy " not in output
    for name in ("kube-apiserver", "kubelet", "coredns", "training-operator", "/run/kfjob/site-packages"):
        assert name in output


def test_up_of_a_running_cluster_changes_nothing():
    status = script("status").stdout
    assert "already running" in script("up").stderr
    assert script("status").stdout == status


def test_second_cluster_is_refused_with_the_name_of_the_first(tmp_path):
    state, cache = str(tmp_path / "state"), str(tmp_path / "cache")
    message = script("up", code=1, KFJOB_CLUSTER_STATE=state, KFJOB_CLUSTER_CACHE=cache).stderr
    assert "another test cluster is on this machine (kfjob test cluster in " in message
    assert list(tmp_path.iterdir()) == []


def test_up_without_root_fails_with_a_hint():
    unprivileged_up = ["unshare", "--user", SCRIPT, "up"]  # another user id that can still read a checkout in /root
    result = subprocess.run(unprivileged_up, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "error: the test cluster needs root" in result.stderr
    assert "sudo --preserve-env=HOME,PATH" in result.stderr


@pytest.mark.parametrize("arguments", [["bogus"], ["up", "--fake-nodes", "many"], ["kubeconfig", "--user", "king"]])
def test_wrong_arguments_print_one_error(arguments):
    message = script(*arguments, code=1).stderr
    assert message.startswith("error: ")
    assert "Traceback" not in message
    assert "failed at" not in message


def test_operator_has_the_version_of_the_manifests():
    version = re.search(r"\?ref=(v\S+)", (MANIFESTS / "operator" / "kustomization.yaml").read_text())
    assert version
    assert re.search(rf"^training-operator\s+-\s+ok\s+{re.escape(version[1])}$", script("status").stdout, re.MULTILINE)
    images = script("kubectl", "-n", "kubeflow", "get", "pods", "-o", "jsonpath={.items[*].spec.containers[*].image}").stdout
    assert images.startswith("ghcr.io/kubeflow/training-v1/training-operator:v1-")


def test_job_image_is_built_once():
    first = script("image")
    second = script("image")
    assert "up to date" in second.stderr
    assert first.stdout == second.stdout
    assert re.fullmatch(r"registry\.kfjob\.test/kfjob:[0-9a-f]{12}\n", second.stdout)


@pytest.mark.parametrize("path", sorted((MANIFESTS / "storage").glob("*.yaml")), ids=lambda path: path.stem)
def test_storage_examples_are_valid(space: Space, path: Path):
    assert len(validate_on_server(path.read_text(), space.name).splitlines()) == len(list(yaml.safe_load_all(path.read_text())))


NEWER = {  # goldens with fields that are newer than v1.7.0
    "overrides": "spec.runPolicy.managedBy",
    "pod": "spec.pytorchReplicaSpecs.Worker.template.spec.initContainers[1].restartPolicy",  # a sidecar, Kubernetes 1.29
    "efa-claim": "spec.pytorchReplicaSpecs.Worker.template.spec.resourceClaims[0].resourceClaimTemplateName",
}
GOLDENS = sorted((ROOT / "tests/golden/manifests").glob("*.yaml"))


def older_jobs(golden: Path, operator: str, space: Space) -> Iterator[str]:
    """Yield the PyTorchJobs of a golden for an older operator's CRD."""
    for document in yaml.safe_load_all(golden.read_text()):
        if document["kind"] == "PyTorchJob":
            document["metadata"]["namespace"] = space.name
            yield yaml.safe_dump(document | {"apiVersion": f"{operator}.kfjob.test/v1"})


@pytest.mark.parametrize("operator", OLDER_OPERATORS)
def test_jobs_are_valid_for_older_operators(space: Space, operator: str):
    """HyperPod's auto-resume needs v1.7.0, 1.8.0 or 1.8.1. v1.9.3 was the newest operator for a year."""
    goldens = [path for path in GOLDENS if path.stem not in NEWER or operator != "operator-1-7"]
    jobs = [job for path in goldens for job in older_jobs(path, operator, space)]
    assert len(jobs) == len(goldens)
    created = validate_on_server("---\n".join(jobs), space.name)
    assert len([line for line in created.splitlines() if line.endswith("created (server dry run)")]) == len(jobs)


@pytest.mark.parametrize(("golden", "field"), NEWER.items(), ids=NEWER)
def test_oldest_operator_refuses_newer_fields(space: Space, golden: str, field: str):
    """This proves that the test above can fail, and that no job loses a field silently."""
    (job,) = older_jobs(ROOT / f"tests/golden/manifests/{golden}.yaml", "operator-1-7", space)
    assert f'unknown field "{field}"' in validate_on_server(job, space.name, code=1)


def test_fields_of_the_newest_operator_are_refused_by_older_ones(space: Space):
    """kfjob checks specs against the newest CRD; the API server of an older operator must report what it does not know."""
    for operator in OLDER_OPERATORS:
        (job,) = older_jobs(ROOT / "tests/golden/manifests/smallest.yaml", operator, space)
        document = yaml.safe_load(job)
        document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["hostnameOverride"] = "a"
        refusal = validate_on_server(yaml.safe_dump(document), space.name, code=1)
        assert 'unknown field "spec.pytorchReplicaSpecs.Worker.template.spec.hostnameOverride"' in refusal


def test_logs_are_collected_in_one_folder(tmp_path):
    script("logs", str(tmp_path / "logs"))
    files = {path.name for path in (tmp_path / "logs").rglob("*") if path.is_file() and path.stat().st_size}
    assert {"kube-apiserver.log", "kubelet.log", "containerd.log", "describe.txt", "objects.yaml"} <= files


POD = """
import os, socket
import torch, kfjob
assert kfjob.__file__.startswith("/usr/"), kfjob.__file__  # from the image, not from the mounted packages
assert torch.__file__.startswith("/opt/host-site-packages/"), torch.__file__
assert os.getuid() != 0
open("mine", "w").close()  # the user owns the working directory
address = socket.gethostbyname("kubernetes.default")  # a short name of a service in another namespace
with socket.create_connection((address, 443), timeout=5):  # a ClusterIP
    pass
try:
    socket.gethostbyname("example.org")
    raise SystemExit("an external name resolves")
except socket.gaierror as error:
    assert error.errno == socket.EAI_NONAME, error
try:
    socket.create_connection(("192.0.2.1", 80), timeout=30).close()
    raise SystemExit("an external address is reachable")
except OSError as error:
    assert not isinstance(error, TimeoutError), error
print("all is well", address)
"""


def test_pod_of_the_job_image_has_torch_and_services_but_no_internet(space: Space):
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
