"""A guard as a process on this machine, and jobs that it guards.

The guard has the rights that `kfjob guard install` gives it: the token of its service account. test_guard_pod runs it in the
pod of its Deployment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from kfjob.cluster.inventory import KubernetesInventory
from tests.cluster.facts import Space, script, until
from tests.cluster.shell import Shell
from tests.kfjob_command import make_command

SHARED = Path("/var/lib/kfjob-cluster/volumes/shared")
PROGRAM = """
import os, pathlib, signal, socket, time
if "IGNORE_SIGTERM" not in os.environ: signal.signal(15, lambda *_: os._exit(143))  # pid 1 ignores it otherwise
rank, fail_at = int(socket.gethostname().rsplit("-", 1)[1]), int(os.environ.get("FAIL_AT", 10**9))
folder = pathlib.Path("/data", os.environ["FOLDER"]); folder.mkdir(exist_ok=True)
start = max((int(path.name[5:]) for path in folder.glob("step-*")), default=0)
def say(text): print(time.strftime("%Y-%m-%d %H:%M:%S I [train.py:1]"), text)
if rank == 0: say(f"Resume step-{start:08d} {folder}" if start else "Resume none")
else: say(f"Rank {rank} begins")
for step in range(start + 1, 100_000):
    time.sleep(0.1)
    if rank == 0: print(f"step {step} loss {2 + 1 / step:.4f}")
    if rank == 0 and step >= fail_at: raise ValueError(f"bad batch {step}")
    if rank == 0 and step == int(os.environ.get("HANG_AT", 0)) and not start: time.sleep(1000)
    if rank == 0 and step % 10 == 0:
        (folder / f"step-{step:08d}").touch()
        say(f"Checkpoint step-{step:08d} in 0.1 s {folder}/step-{step:08d}")
"""


class Guard:
    """A guard process; `setup` is code that runs before it."""

    def __init__(
        self, space: Space, kubeconfig: Path, folder: Path, number: int, *argv: str, setup: str = "", **variables: str
    ) -> None:
        self.log = folder / f"guard-{number}.log"
        env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")}
        env |= {"KUBECONFIG": str(kubeconfig), "KFJOB_NAMESPACE": space.name, "KFJOB_STATE": str(folder / "guard-state")}
        env |= {"KFJOB_IMAGE_CHECK": "false", **variables}
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*make_command(setup), "guard", "run", *argv], env=env, stdout=out, stderr=subprocess.STDOUT, cwd=folder
            )

    def says(self, text: str) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return text in self.log.read_text()

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(20)


Start = Callable[..., Guard]


@contextmanager
def running_job(space: Space, name: str, kfjob: Shell, **fields: Any) -> Iterator[None]:
    """Submit a job of two workers, and wait for its first checkpoint; remove its checkpoints at the end."""
    folder = f"{space.name}-{name}"
    spec = {
        "name": name,
        "image": space.facts.image,
        "nodes": 2,
        "command": ["python3", "-u", "-c", PROGRAM],
        "env": {"FOLDER": folder, **fields.pop("env", {})},
        "pod": {"grace": 2},
        "volumes": [{"name": "data", "host_path": "/run/kfjob/shared", "mount_path": "/data"}],
        **fields,
    }
    (kfjob.folder / "job.yaml").write_text(yaml.safe_dump(spec))
    kfjob("submit", "job.yaml")
    try:
        until(lambda: any((SHARED / folder).glob("step-*")))
        yield
    finally:
        shutil.rmtree(SHARED / folder, ignore_errors=True)


def list_objects(space: Space, api_version: str, resource: str, *, labels: str = "") -> list[dict[str, Any]]:
    return KubernetesInventory(space.client, space.name).list_objects(api_version, resource, labels=labels)


def is_relaunching(space: Space, name: str) -> bool:
    leases = list_objects(space, "coordination.k8s.io/v1", "leases")
    return f"kfjob-relaunch-{name}" in {lease["metadata"]["name"] for lease in leases}


def read_job(space: Space, name: str) -> dict[str, Any]:
    return next(job for job in list_objects(space, "kubeflow.org/v1", "pytorchjobs") if job["metadata"]["name"] == name)


def read_relaunches(job: dict[str, Any]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(job["metadata"]["annotations"].get("kfjob.dev/relaunches", "[]"))
    return entries


def read_launch_id(space: Space, name: str) -> str:
    launch: str = read_job(space, name)["metadata"]["labels"]["kfjob.dev/launch"]
    return launch


def list_guard_events(space: Space, name: str) -> list[tuple[str, str]]:
    events = [event for event in list_objects(space, "v1", "events") if event["involvedObject"].get("name") == name]
    return [(e["reason"], e["message"]) for e in events if e.get("source", {}).get("component") == "kfjob-guard"]


def list_pods(space: Space, name: str) -> list[str]:
    label = f"training.kubeflow.org/job-name={name}"
    return [pod["metadata"]["name"] for pod in list_objects(space, "v1", "pods", labels=label)]


def delete_pod(space: Space, pod: str) -> None:
    script("kubectl", "-n", space.name, "delete", "pod", pod, "--wait=false")
