"""A further node that is lost, drained, or whose kubelet restarts, under jobs with a pod on each node."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import elastic
from tests.cluster.facts import Space, needs_own_cluster, script, until
from tests.cluster.guarded import (
    SHARED,
    Start,
    list_guard_events,
    list_objects,
    read_job,
    read_launch_id,
    read_relaunches,
    running_job,
)
from tests.cluster.shell import Shell
from tests.kfjob_command import KFJOB

NODE = "further"
STATE = Path("/var/lib/kfjob-cluster")
LABEL = "training.kubeflow.org/job-name"


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    """Start a further node, on which only pods with a toleration run."""
    needs_own_cluster("starts and ends a node")
    script("node", "add", NODE)
    yield NODE
    script("node", "remove", NODE)


@pytest.fixture(autouse=True)
def ready_node(node: str) -> None:
    script("node", "add", node)  # after a test that has lost it; these tests come last
    script("kubectl", "uncordon", node)


def on_both_nodes(name: str, when: str) -> dict[str, Any]:
    """Return the scheduling of a job with one pod on each node."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": when}
    spread |= {"labelSelector": {"matchLabels": {LABEL: name}}}
    return {"tolerations": [{"key": "kfjob.test/further-node"}], "spread": [spread]}


def find_pod(space: Space, name: str, node: str) -> str:
    """Return the pod of the job on the node."""
    pods = list_objects(space, "v1", "pods", labels=f"{LABEL}={name}")
    (pod,) = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == node]
    return str(pod)


def test_follower_reads_every_line_through_a_restart_of_the_kubelet(space: Space, name: str, node: str, tmp_path: Path):
    kfjob = Shell(space, tmp_path)
    with running_job(space, name, kfjob, nodes=1, scheduling={**on_both_nodes(name, "ScheduleAnyway"), "node_selector": {
        "kubernetes.io/hostname": node}}):  # fmt: skip
        env = os.environ | {"KUBECONFIG": space.facts.kubeconfig, "KFJOB_NAMESPACE": space.name}
        followed = tmp_path / "followed"
        with followed.open("wb") as out:
            follower = subprocess.Popen([KFJOB, "logs", name, "-f"], env=env, stdout=out, cwd=tmp_path)
        until(lambda: "step 30 " in followed.read_text())
        pid = int((STATE / f"pids/kubelet-{node}").read_text().split()[0])
        os.kill(int(subprocess.check_output(["pgrep", "-P", str(pid)])), signal.SIGKILL)
        newest = len(followed.read_text().splitlines())
        script("node", "add", node)
        until(lambda: len(followed.read_text().splitlines()) > newest + 40)  # the new stream has begun
        follower.send_signal(signal.SIGINT)
        follower.wait(20)
        steps = [int(step) for step in re.findall(r"^step (\d+) ", followed.read_text(), re.MULTILINE)]
        assert steps == list(range(1, len(steps) + 1))
        kfjob("stop", name)


def test_elastic_job_goes_on_smaller_while_a_node_is_drained_and_grows_back(space: Space, name: str, node: str, tmp_path: Path):
    kfjob = Shell(space, tmp_path, env={"KFJOB_ETCD_IMAGE": space.facts.etcd_image})
    folder = SHARED / f"{space.name}-{name}"
    folder.mkdir()
    (folder / "fit.py").write_text(elastic.PROGRAM)
    spec = {
        "name": name,
        "image": space.facts.image,
        "nodes": 2,
        "elastic": {"min": 1, "max": 2},
        "command": "torchrun --start-method=fork --run-path /data/fit.py",  # torch is imported once a pod
        "env": {"PYTHONPATH": "/opt/host-site-packages"},
        "pod": {"grace": 5},
        "restarts": {"max": 20},
        "rendezvous": {"backend": "etcd", "conf": {"last_call_timeout": 1}},
        "volumes": [
            *yaml.safe_load(script("volumes"))[:1],
            {"name": "code", "host_path": f"/run/kfjob/shared/{folder.name}", "mount_path": "/data"},
        ],
        "scheduling": on_both_nodes(name, "DoNotSchedule"),
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))
    kfjob("submit", "job.yaml")

    try:
        until(lambda: elastic.has_world(kfjob, name, 2))
        script(
            "kubectl",
            "drain",
            node,
            f"--pod-selector={LABEL}={name}",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--force",
        )
        until(lambda: elastic.has_world(kfjob, name, 1))
        assert f"{name}   Running" in kfjob("status", name)
        script("kubectl", "uncordon", node)
        until(lambda: elastic.has_world(kfjob, name, 2))
    finally:
        kfjob("stop", name)
        shutil.rmtree(folder)


def test_lost_node_does_not_hide_the_other_pods(space: Space, name: str, node: str, tmp_path: Path):
    kfjob = Shell(space, tmp_path)
    with running_job(space, name, kfjob, scheduling=on_both_nodes(name, "ScheduleAnyway")):
        pod = find_pod(space, name, node)
        script("node", "lose", node)
        with ThreadPoolExecutor() as threads:  # each waits for the node
            log = threads.submit(kfjob, "logs", name, "--pod", pod, code=3)
            assert all(threads.map(lambda command: kfjob(command, name), ("status", "master", "diagnose", "history")))
        assert f"the log of pod `{pod}` cannot be read: its node does not answer" in log.result()
        kfjob("stop", name, "--force")  # without it Kubernetes keeps the pod until the node is deleted
        script("kubectl", "delete", "node", node)
        folders = (tmp_path / "state/archive" / space.name / name).glob("*/*-worker-*")
        assert [path.name for path in folders] == [next(one for one in (f"{name}-worker-0", f"{name}-worker-1") if one != pod)]


@pytest.mark.long  # Kubernetes calls a node not ready after 50 s, and the guard waits another minute
def test_job_of_a_lost_node_is_relaunched_on_another(space: Space, name: str, node: str, start_guard: Start, tmp_path: Path):
    kfjob, guard = Shell(space, tmp_path), start_guard()
    with running_job(space, name, kfjob, recovery={}, scheduling=on_both_nodes(name, "ScheduleAnyway")):
        until(lambda: guard.says(f"{name}: supervises launch"))
        old = read_launch_id(space, name)
        pod = find_pod(space, name, node)
        script("node", "lose", node)
        assert f"{pod}" in kfjob("status", name)  # at once, when nobody knows yet that the node is gone
        until(lambda: "NodeNotReady" in kfjob("status", name))
        assert f"the node of pod `{pod}` does not answer" in kfjob("diagnose", name)
        until(lambda: guard.says(f"{name}: relaunch: pod `{pod}` was lost with node `{node}`"))
        script("kubectl", "delete", "node", node)  # as the cloud's controller does when the machine is gone
        until(lambda: guard.says(f"replaces {old}"))
        kfjob("wait", name, "--for", "progress", "--timeout", "120")
        (entry,) = read_relaunches(read_job(space, name))
        assert (entry["node"], entry["progress"] >= 10) == (node, True)
        assert "Resume step-" in kfjob("logs", name, "--pod", f"{name}-worker-0")
        assert [reason for reason, _ in list_guard_events(space, name)] == ["Relaunching"]
        kfjob("stop", name)
