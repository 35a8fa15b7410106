"""The guard on a real cluster, with the rights that `kfjob guard install` gives it and nobody who follows the job.

The guard runs on this machine with the token of its service account. The pod of its Deployment cannot start here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.cluster.inventory import KubernetesInventory
from tests.cluster.facts import Space, needs_own_cluster, script, until
from tests.cluster.shell import KFJOB, Shell
from tests.mock_s3 import MockS3
from tests.receiver import Receiver

SHARED = Path("/var/lib/kfjob-cluster/volumes/shared")
PROGRAM = """
import os, pathlib, socket, time
rank, fail_at = int(socket.gethostname().rsplit("-", 1)[1]), int(os.environ.get("FAIL_AT", 10**9))
folder = pathlib.Path("/data", os.environ["FOLDER"]); folder.mkdir(exist_ok=True)
start = max((int(path.name[5:]) for path in folder.glob("step-*")), default=0)
def say(text): print(time.strftime("%Y-%m-%d %H:%M:%S I [train.py:1]"), text)
if rank == 0: say(f"Resume step-{start:08d} {folder}" if start else "Resume none")
for step in range(start + 1, 100_000):
    time.sleep(0.1)
    if rank == 0: print(f"step {step} loss {2 + 1 / step:.4f}")
    if rank == 0 and step >= fail_at: raise ValueError(f"bad batch {step}")
    if rank == 0 and step % 10 == 0:
        (folder / f"step-{step:08d}").touch()
        say(f"Checkpoint step-{step:08d} in 0.1 s {folder}/step-{step:08d}")
"""


class Guard:
    """A guard process."""

    def __init__(self, space: Space, kubeconfig: Path, folder: Path, number: int, *argv: str, **variables: str) -> None:
        self.log = folder / f"guard-{number}.log"
        env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")}
        env |= {"KUBECONFIG": str(kubeconfig), "KFJOB_NAMESPACE": space.name, "KFJOB_STATE": str(folder / "guard-state")}
        env |= {"KFJOB_IMAGE_CHECK": "false", **variables}
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [KFJOB, "guard", "run", *argv], env=env, stdout=out, stderr=subprocess.STDOUT, cwd=folder
            )

    def says(self, text: str) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return text in self.log.read_text()

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(20)


Start = Callable[..., Guard]


@pytest.fixture(scope="module")
def kubeconfig(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the guard, and return the kubeconfig of its service account; no pod can start with this image."""
    needs_own_cluster("writes checkpoints into a folder of the node")
    folder = tmp_path_factory.mktemp("guard")
    Shell(space, folder)("guard", "install", "--image", "registry.kfjob.test/no-such-image:1")
    config = yaml.safe_load(Path(space.facts.kubeconfig).read_text())
    token = script("kubectl", "-n", space.name, "create", "token", "kfjob-guard")
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def start_guard(space: Space, kubeconfig: Path, tmp_path: Path) -> Iterator[Start]:
    guards: list[Guard] = []

    def start(*argv: str, **variables: str) -> Guard:
        guards.append(Guard(space, kubeconfig, tmp_path, len(guards), *argv, **variables))
        return guards[-1]

    yield start
    for guard in guards:
        if guard.process.poll() is None:
            guard.end(signal.SIGTERM)


@pytest.fixture
def mock_s3() -> Iterator[MockS3]:
    server = MockS3()
    yield server
    server.stop()


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


def list_keys(bucket: Any) -> list[str]:
    return [item["Key"] for item in bucket.list_objects_v2(Bucket="logs").get("Contents", ())]


def list_guard_events(space: Space, name: str) -> list[tuple[str, str]]:
    events = [event for event in list_objects(space, "v1", "events") if event["involvedObject"].get("name") == name]
    return [(e["reason"], e["message"]) for e in events if e.get("source", {}).get("component") == "kfjob-guard"]


def list_pods(space: Space, name: str) -> list[str]:
    label = f"training.kubeflow.org/job-name={name}"
    return [pod["metadata"]["name"] for pod in list_objects(space, "v1", "pods", labels=label)]


def delete_pod(space: Space, pod: str) -> None:
    script("kubectl", "-n", space.name, "delete", "pod", pod, "--wait=false")


def test_deleted_pod_is_relaunched_from_the_newest_checkpoint(space: Space, name: str, start_guard: Start, tmp_path: Path):
    kfjob, guard = Shell(space, tmp_path), start_guard()
    with running_job(space, name, kfjob, recovery={"retries": 2}):
        old = read_job(space, name)["metadata"]
        until(lambda: guard.says(f"{name}: supervises launch"))
        delete_pod(space, f"{name}-worker-0")
        until(lambda: guard.says(f"replaces {old['labels']['kfjob.dev/launch']}"))
        new = read_job(space, name)
        (entry,) = read_relaunches(new)
        assert entry["launch"] == old["labels"]["kfjob.dev/launch"]
        assert entry["progress"] >= 10
        assert new["metadata"]["annotations"]["kfjob.dev/submitted-by"] == old["annotations"]["kfjob.dev/submitted-by"]
        kfjob("wait", name, "--for", "progress", "--timeout", "120")
        assert "Resume step-" in kfjob("logs", name, "--pod", f"{name}-worker-0")
        ((reason, message),) = list_guard_events(space, name)
        assert reason == "Relaunching"
        assert f"pod `{name}-worker-0` was removed from the job" in message
        assert "Killing" in message or "Terminating" in message  # the kubelet's event may come later
        assert f"{name}: Running, 1 relaunch; pod `{name}-worker-0`" in kfjob("guard", "status")
        assert f"1 relaunch, the last after step {entry['step']}: pod `{name}-worker-0`" in kfjob("status", name)
        archived = tmp_path / "guard-state" / "archive" / space.name / name / entry["launch"] / f"{name}-worker-0"
        lines = (archived / "pytorch.log").read_text().splitlines()  # of a pod that was gone when the job had failed
        steps = [int(line.split()[2]) for line in lines if " step " in line]
        assert len(steps) >= entry["step"]
        assert steps == list(range(1, len(steps) + 1))
        kfjob("stop", name)


def test_archive_in_s3_gives_another_machine_the_verdict_and_all_lines(
    space: Space, name: str, start_guard: Start, tmp_path: Path, mock_s3: MockS3
):
    kfjob, guard = Shell(space, tmp_path), start_guard("--archive", "s3://logs/guard", **mock_s3.environment)
    pod, prefix, bucket = f"{name}-worker-0", f"guard/{space.name}/{name}", mock_s3.make_client()
    bucket.create_bucket(Bucket="logs")
    with running_job(space, name, kfjob, recovery={"retries": 1}, env={"FAIL_AT": "60"}):
        until(lambda: guard.says(f"{name}: supervises launch"))
        first = read_launch_id(space, name)
        delete_pod(space, pod)
        until(lambda: guard.says(f"replaces {first}"))
        until(lambda: f"{prefix}/{first}/events.json" in list_keys(bucket))
        mock_s3.stop()  # two launches fail while S3 does not answer
        until(lambda: guard.says("deleted 1 pod that still ran after the failure"))
        until(lambda: guard.says("the guard tries again: AWS does not answer"))
        until(lambda: list_pods(space, name) == [pod])
        last = read_launch_id(space, name)
        verdict, lines = json.loads(kfjob("diagnose", name, "-o", "json")), kfjob("logs", name, "--pod", pod)
        mock_s3.start()
        until(lambda: guard.says("the archive is copied to s3://logs/guard again"))
        kfjob("stop", name)
    guard.end(signal.SIGTERM)
    shutil.rmtree(tmp_path / "guard-state")
    env = {"KUBECONFIG": str(tmp_path / "none"), "KFJOB_STATE": str(tmp_path / "other"), **mock_s3.environment}
    other, address = Shell(space, tmp_path, env=env), f"s3://logs/{prefix}"
    archived = json.loads(other("diagnose", "--from", f"{address}/{last}", "-o", "json"))
    assert "ValueError: bad batch 60" in json.dumps(verdict)
    assert {**archived, "pods": 0} == {**verdict, "pods": 0}  # the archive keeps the pod that the guard has deleted
    assert other("logs", "--from", f"{address}/{last}", "--pod", pod) == lines
    shown = other("logs", "--from", f"{address}/{first}", "--pod", pod).splitlines()
    steps = [int(line.split()[1]) for line in shown if line.startswith("step ")]
    assert len(steps) >= 10
    assert steps == list(range(1, len(steps) + 1))
    elsewhere = Shell(space, tmp_path, env=env | {"KFJOB_ARCHIVE": "s3://logs/guard"})
    launches = [launch["launch"] for launch in json.loads(elsewhere("history", name, "-o", "json"))]
    assert (launches[0], len(launches), launches[-1]) == (first, 3, last)
    assert elsewhere("logs", name, "--pod", pod) == lines


def test_relaunch_is_notified_and_shows_in_the_metrics(space: Space, name: str, start_guard: Start, tmp_path: Path):
    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    labels = f'job="{name}",namespace="{space.name}"'
    with Receiver() as receiver:
        address = f"json://me:swordfish@127.0.0.1:{receiver.port}"
        kfjob, guard = Shell(space, tmp_path), start_guard("--metrics-port", str(port), KFJOB_NOTIFY=address)
        with running_job(space, name, kfjob, recovery={}):
            until(lambda: f"kfjob_job_step{{{labels}}}" in scrape())
            assert f'kfjob_job_phase{{{labels},phase="Running"}} 1.0' in scrape()
            delete_pod(space, f"{name}-worker-0")
            until(lambda: f"kfjob_job_relaunches{{{labels}}} 1.0" in scrape())
            kfjob("stop", name)
            until(lambda: labels not in scrape())
    assert [entry["title"] for entry in receiver.received] == [f"relaunch of job {name} in namespace {space.name}"]
    assert f"pod `{name}-worker-0` was removed from the job" in receiver.received[0]["message"]
    assert "swordfish" not in guard.log.read_text()


def test_same_exception_at_the_same_step_twice_stops_the_job(space: Space, name: str, start_guard: Start, tmp_path: Path):
    kfjob, guard = Shell(space, tmp_path), start_guard()
    with running_job(space, name, kfjob, recovery={}, env={"FAIL_AT": "17"}):
        until(lambda: guard.says("deleted 1 pod that still ran after the failure"))
        assert guard.says("stop: the same failure ended two launches after step 17")
        until(lambda: "kfjob.dev/guard-decision" in read_job(space, name)["metadata"]["annotations"])
        job = read_job(space, name)
        assert len(read_relaunches(job)) == 1
        until(lambda: list_pods(space, name) == [f"{name}-worker-0"])
        reasons = [reason for reason, _ in list_guard_events(space, name)]
        assert sorted(reasons) == ["RelaunchStopped", "Relaunching"]
        assert "ValueError: bad batch 17" in kfjob("diagnose", name, "-o", "json", code=0)
        guard.end(signal.SIGTERM)
        other = start_guard()  # starts at once, and does not decide again
        until(lambda: other.says("guards namespace"))
        assert not other.says(f"{name}: supervises")
        kfjob("stop", name)


def test_guard_killed_in_the_middle_of_a_relaunch_leaves_one_new_launch(
    space: Space, name: str, start_guard: Start, tmp_path: Path
):
    kfjob, guard = Shell(space, tmp_path), start_guard()
    with running_job(space, name, kfjob, recovery={}):
        until(lambda: guard.says(f"{name}: supervises launch"))
        delete_pod(space, f"{name}-worker-0")
        until(lambda: is_relaunching(space, name))
        guard.end(signal.SIGKILL)
        other, third = start_guard(), start_guard()
        until(lambda: not is_relaunching(space, name))
        until(lambda: other.says(f"{name}: supervises launch") or third.says(f"{name}: supervises launch"))
        assert len(read_relaunches(read_job(space, name))) == 1
        assert [reason for reason, _ in list_guard_events(space, name)] == ["Relaunching"]
        logs = other.log.read_text() + third.log.read_text()
        assert logs.count(f"{name}: supervises launch") == 1
        assert logs.count("completes a relaunch that another guard has begun") == 1
        kfjob("stop", name)


def test_limit_stops_a_job_that_nobody_follows(space: Space, name: str, start_guard: Start, tmp_path: Path):
    kfjob, guard = Shell(space, tmp_path), start_guard()
    with running_job(space, name, kfjob, recovery={}, watchdog={"deadline": 8}):
        until(lambda: guard.says(f"{name}: stop: it has run for"))
        until(lambda: name not in {job["metadata"]["name"] for job in list_objects(space, "kubeflow.org/v1", "pytorchjobs")})
        assert list((tmp_path / "guard-state" / "archive" / space.name / name).iterdir())


def test_command_that_follows_frees_the_survivors_unless_the_spec_keeps_them(space: Space, name: str, tmp_path: Path):
    kfjob = Shell(space, tmp_path)
    with running_job(space, name, kfjob, env={"FAIL_AT": "17"}, run={"after_failure": "keep"}):
        kfjob("wait", name, code=100)
        assert len(list_pods(space, name)) == 2
        (tmp_path / "job.yaml").write_text(
            (tmp_path / "job.yaml").read_text().replace("after_failure: keep", "after_failure: stop")
        )
        kfjob("submit", "job.yaml")
        message = kfjob("wait", name, code=100)
        assert f"deleted 1 pod that still ran after the failure: `{name}-worker-1`" in message
        until(lambda: list_pods(space, name) == [f"{name}-worker-0"])
        assert "ValueError: bad batch 17" in kfjob("diagnose", name)
        kfjob("stop", name)
