"""The guard in the pod of its Deployment, as `kfjob guard install` makes it, from the image that the Dockerfile makes."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.facts import Space, needs_own_cluster, script, until
from tests.cluster.guarded import delete_pod, list_objects, read_job, read_launch_id, read_relaunches, running_job
from tests.cluster.shell import Shell

ENFORCE = "pod-security.kubernetes.io/enforce"


def test_guard_in_its_pod_passes_the_restricted_standard_and_relaunches_a_job(space: Space, name: str, tmp_path: Path):
    needs_own_cluster("pushes the image into its registry, and mounts a folder of the node")
    kfjob = Shell(space, tmp_path)
    script("kubectl", "label", "namespace", space.name, f"{ENFORCE}=restricted", "--overwrite")
    kfjob("guard", "install", "--image", script("guard-image"))
    until(lambda: kfjob("guard", "status").startswith("guard      ready"))
    # The job mounts a folder of the node.
    script("kubectl", "label", "namespace", space.name, f"{ENFORCE}=privileged", "--overwrite")
    with running_job(space, name, kfjob, recovery={}):
        assert f"{name}: Running" in kfjob("guard", "status")
        old = read_launch_id(space, name)
        delete_pod(space, f"{name}-worker-0")
        until(lambda: f"replaces {old}" in script("kubectl", "-n", space.name, "logs", "deployment/kfjob-guard"))
        kfjob("wait", name, "--for", "progress", "--timeout", "120")
        assert "Resume step-" in kfjob("logs", name, "--pod", f"{name}-worker-0")
        (entry,) = read_relaunches(read_job(space, name))
        assert entry["launch"] == old
        kfjob("stop", name)
    kfjob("guard", "uninstall")
    assert not list_objects(space, "apps/v1", "deployments")
