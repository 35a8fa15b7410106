"""TrainJobs of Kubeflow Trainer on a real cluster: submitted, followed, asked for their master, stopped, relaunched, failed.

Trainer stays installed after these tests: it sees TrainJobs only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import kfjob
from kfjob.api.settings import Settings
from kfjob.base.errors import AlreadyExists, SpecError
from kfjob.cluster import requests
from kfjob.joblog.events import JobPhase, LogLine
from kfjob.joblog.master.evidence import Confidence
from kfjob.kinds.registry import find_kind
from tests.cluster import elastic
from tests.cluster.facts import IN_POD, ROOT, Space, needs_own_cluster, script, until
from tests.cluster.facts import space as make_space
from tests.cluster.shell import Shell
from tests.cluster.test_goldens import find_differences

KIND = find_kind("TrainJob")
NODE = "kfjob-node"
PROGRAM = """
import os, pathlib, sys, time
kept = pathlib.Path(sys.argv[1])
first = int(kept.read_text()) if kept.exists() else 0
for step in range(first + 1, int(sys.argv[2]) + 1):
    if os.environ["RANK"] == "0":
        print(f"2026-06-12 00:08:25 I [train.py:102] Batch {step} Loss: {9 / step:.5f}, "
              "Speed: 0.43 samples/sec, lr: 0.000091", flush=True)
        kept.write_text(str(step))
    time.sleep(0.2)
"""

pytestmark = pytest.mark.long  # the first run builds JobSet, in minutes


@pytest.fixture(scope="module")
def own() -> Iterator[Space]:
    needs_own_cluster("installs Kubeflow Trainer")
    script("trainer", "up")
    with make_space() as space:
        yield space


@pytest.fixture
def settings(own: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("KUBECONFIG", own.facts.kubeconfig)
    return Settings(state=tmp_path, backend="kubernetes", namespace=own.name)


def make_spec(own: Space, name: str, command: list[str] | None = None, **fields: Any) -> dict[str, Any]:
    volumes = [*map(dict, own.facts.volumes), {"name": "programs", "config_map": "programs", "mount_path": IN_POD}]
    volumes.append({"name": "data", "host_path": "/run/kfjob/shared", "mount_path": "/data"})
    return {
        "name": name,
        "target": "trainjob",
        "image": own.facts.image,
        "nodes": 2,
        "processes_per_node": 1,
        **({"command": command} if command else {}),
        "volumes": volumes,
        **fields,
    }


def test_job_is_followed_stopped_and_resumed(own: Space, settings: Settings, tmp_path: Path):
    program = ["torchrun", "--no-python", "python3", "-c", PROGRAM, f"/data/{own.name}-steps", "100000"]
    spec = make_spec(own, "train", program)
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(spec))
    shell = Shell(own, tmp_path)
    assert "the API server accepts TrainJob `train`" in shell("preflight", "train.yaml")
    run = kfjob.submit(spec, settings=settings)
    shell("diff", "train.yaml")
    assert "spec.trainer.env[A]  (needs a new launch)" in shell("diff", "train.yaml", "--set", "env.A=1")
    master = check_launch(run, step=3)
    with pytest.raises(AlreadyExists):
        kfjob.submit(make_spec(own, "train", ["true"]), settings=settings)
    again = run.relaunch(timeout=60)
    assert again.launch != run.launch
    line = next(event for _, event in again.follow() if isinstance(event, LogLine) and " Loss: " in event.text)
    assert " Batch 1 Loss" not in line.text  # it resumes
    check_launch(again)
    (listed,) = kfjob.list_jobs(settings=settings)
    assert (listed.name, listed.job_kind, listed.image) == ("train", "TrainJob", own.facts.image)
    archive = kfjob.stop("train", settings=settings, timeout=60)
    assert archive is not None
    archived = [log.parent.name for log in archive.parent.rglob("pytorch.log") if "Batch 1 Loss" in log.read_text()]
    assert archived == [master]
    assert kfjob.list_jobs(settings=settings) == []
    assert not own.client.call(requests.select_dependents(KIND, "pods", own.name, "train").list_request()).get("items")


@contextmanager
def shared_runtime(own: Space, name: str, policy: dict[str, Any], folder: Path) -> Iterator[None]:
    """Create a ClusterTrainingRuntime as an administrator has it for everybody, and remove it again."""
    node = {"name": "node", "image": own.facts.image}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": [node]}}}}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}},
    }
    file = folder / "runtime.json"
    file.write_text(json.dumps(runtime))
    script("kubectl", "apply", "--server-side", "-f", str(file))
    try:
        yield
    finally:
        script("kubectl", "delete", "clustertrainingruntime", name, "--timeout=60s")


@pytest.mark.parametrize("rendezvous", ["c10d", "static"])
def test_job_of_a_runtime_of_the_cluster(own: Space, settings: Settings, tmp_path: Path, rendezvous: str):
    name = f"{own.name}-torch"
    program = ["torchrun", "--no-python", "python3", "-c", PROGRAM, f"/data/{own.name}-{rendezvous}", "100000"]
    fields = {"runtime": name, "rendezvous": rendezvous}
    with shared_runtime(own, name, {"numNodes": 1, "torch": {}}, tmp_path):
        run = kfjob.submit(make_spec(own, "train", program, **fields), settings=settings)
        check_launch(run, step=3)
        with pytest.raises(SpecError, match="there is no TrainingRuntime `nope`"):
            kfjob.submit(
                make_spec(own, "train", program, **fields | {"runtime": "trainingruntime/nope"}),
                settings=settings,
                replace=True,
            )
        assert run.snapshot().job.phase is JobPhase.RUNNING
        check_launch(run.relaunch(timeout=60))
        kfjob.stop("train", settings=settings, timeout=60)
        runtimes = script("kubectl", "get", "clustertrainingruntimes", "-o", "name")
        assert f"clustertrainingruntime.trainer.kubeflow.org/{name}" in runtimes


def check_launch(run: kfjob.Run, *, step: int | None = None) -> str:
    """Check that the job runs, and that its master is the pod that prints the progress; return its name."""
    until(lambda: run.snapshot().job.phase is JobPhase.RUNNING)
    text = f"Batch {step} Loss" if step else " Loss: "
    line = next(event for _, event in run.follow() if isinstance(event, LogLine) and text in event.text)
    master = run.master()
    assert master.confidence is Confidence.CONFIRMED
    assert master.pod == line.pod
    hosts = {pod.replica_index: (pod.host, pod.pod.rpartition("-")[0]) for pod in run.snapshot().pods}
    assert hosts == {index: (f"train-node-0-{index}.train", f"train-node-0-{index}") for index in range(2)}
    return master.pod


def test_failure_is_diagnosed(own: Space, settings: Settings):
    program = "import time; time.sleep(2); import module_that_nobody_has"
    run = kfjob.submit(make_spec(own, "fails", ["python3", "-c", program], nodes=1), settings=settings)
    assert run.wait(timeout=90) is JobPhase.FAILED
    snapshot = run.snapshot()
    assert snapshot.job.reason
    assert snapshot.job.ended is not None
    diagnosis = run.diagnose()
    assert diagnosis.first_cause is not None
    assert "module_that_nobody_has" in diagnosis.first_cause.title
    run.stop(timeout=60)


STEP = re.compile(r"Batch (\d+) Loss: (\S+),")
TRAINING = {
    "model": "tiny-llama",
    "sequence_length": 128,
    "strategy": "fsdp",
    "precision": "fp32",
    "micro_batch_size": 8,
    "max_steps": 60,
    "log_every": 1,
    "checkpoint_every": 20,
}


def test_training_posts_its_progress_and_has_the_losses_of_a_pytorchjob(own: Space, settings: Settings):
    folder = f"/data/{own.name}"

    def submit(name: str, **fields: Any) -> kfjob.Run:
        return kfjob.submit(make_spec(own, name, **fields), settings=settings)

    def train(name: str, target: str) -> kfjob.Run:
        return submit(name, target=target, train={**TRAINING, "data": f"{folder}-text", "checkpoint_dir": f"{folder}-{name}"})

    text = submit("text", command=["python3", "-m", "kfjob.trainer.data.tiny_text", f"{folder}-text"], nodes=1)
    assert text.wait(timeout=180) is JobPhase.SUCCEEDED
    whole = train("whole", "pytorchjob")
    assert whole.wait(timeout=400) is JobPhase.SUCCEEDED
    whole.stop(timeout=60)
    run = train("parts", "trainjob")
    next(event for _, event in run.follow() if isinstance(event, LogLine) and "Batch 30 Loss" in event.text)
    assert read_status(own, "parts")["trainerStatus"]["progressPercentage"] > 0
    again = run.relaunch(timeout=90)
    assert again.wait(timeout=400) is JobPhase.SUCCEEDED
    status = read_status(own, "parts")["trainerStatus"]
    assert status["progressPercentage"] == 100
    assert {"name": "step", "value": "60"} in status["metrics"]
    resumed = read_losses(again)
    again.stop(timeout=60)

    archive = settings.state / "archive" / own.name
    expected = read_archived(archive / "whole")
    assert list(expected) == list(range(1, 61))
    assert min(resumed) > 20  # it resumes
    assert read_archived(archive / "parts") == expected


def read_status(own: Space, name: str) -> dict[str, Any]:
    status: dict[str, Any] = own.client.call(requests.get_job(KIND, own.name, name))["status"]
    return status


def read_losses(run: kfjob.Run) -> dict[int, str]:
    lines = (line.text for pod in run.snapshot().pods for line in run.logs(pod.pod) if isinstance(line, LogLine))
    return find_losses(lines)


def read_archived(folder: Path) -> dict[int, str]:
    """Return the loss of each step in the logs of all launches; a step in two launches has the same one in both."""
    launches = [find_losses(log.read_text().splitlines()) for log in sorted(folder.rglob("pytorch.log"))]
    losses = {step: loss for one in launches for step, loss in one.items()}
    assert all(losses[step] == loss for one in launches for step, loss in one.items())
    return dict(sorted(losses.items()))


def find_losses(lines: Iterable[str]) -> dict[int, str]:
    return {int(found[1]): found[2] for line in lines if (found := STEP.search(line))}


def test_elastic_job_goes_on_smaller_without_a_pod_and_grows_back(own: Space, settings: Settings, tmp_path: Path):
    program = ["torchrun", "--no-python", "python3", "-c", elastic.PROGRAM]
    fields: dict[str, Any] = {"elastic": {"min": 1, "max": 2}, "restarts": {"max": 20}, "pod": {"grace": 5}}
    with_etcd = replace(settings, etcd_image=own.facts.etcd_image)
    run = kfjob.submit(make_spec(own, "elastic", program, rendezvous="etcd", **fields), settings=with_etcd)
    shell = Shell(own, tmp_path)

    until(lambda: elastic.has_world(shell, "elastic", 2))
    pod = next(pod.pod for pod in run.snapshot().pods if pod.replica_index == 1)
    script("kubectl", "cordon", NODE)
    try:
        script("kubectl", "delete", "pod", pod, "-n", own.name)
        until(lambda: elastic.has_world(shell, "elastic", 1))
        assert run.snapshot().job.phase is JobPhase.RUNNING
    finally:
        script("kubectl", "uncordon", NODE)
    until(lambda: elastic.has_world(shell, "elastic", 2))
    new = next(pod.pod for pod in run.snapshot().pods if pod.replica_index == 1)
    assert new != pod
    run.stop(timeout=60)


GOLDENS = sorted((ROOT / "tests" / "golden" / "trainjobs").glob("*.yaml"))


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.stem)
def test_webhooks_accept_the_golden(golden: Path, own: Space):
    runtime, job, *_ = (
        {**manifest, "metadata": {**manifest["metadata"], "namespace": own.name}}
        for manifest in yaml.safe_load_all(golden.read_text(encoding="utf-8"))
    )
    live = own.client.call(requests.create(runtime))
    try:
        stored = own.client.call(requests.create(job, dry_run=True))
        assert find_differences(job["spec"], stored["spec"]) == []
    finally:
        own.client.call(requests.delete_object(live))


def test_server_accepts_a_dry_run(own: Space, settings: Settings, tmp_path: Path):
    spec = make_spec(own, "dry", ["true"])
    objects = kfjob.render(spec, settings=settings)
    assert [item["kind"] for item in objects] == ["TrainingRuntime", "TrainJob"]
    with own.open() as backend:
        stored = backend.dry_run(objects)
    assert stored[0]["metadata"]["uid"]
    assert kfjob.list_jobs(settings=settings) == []
