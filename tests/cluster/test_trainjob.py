"""TrainJobs of Kubeflow Trainer on a real cluster: submitted, followed, asked for their master, stopped, relaunched, failed.

Trainer stays installed after these tests: it sees TrainJobs only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import kfjob
from kfjob.api.settings import Settings
from kfjob.base.errors import AlreadyExists
from kfjob.cluster import requests
from kfjob.joblog.events import JobPhase, LogLine
from kfjob.joblog.master.evidence import Confidence
from kfjob.kinds.registry import find_kind
from tests.cluster.facts import IN_POD, ROOT, Space, needs_own_cluster, script, space, until
from tests.cluster.test_goldens import find_differences

KIND = find_kind("TrainJob")
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

pytestmark = [pytest.mark.cluster, pytest.mark.long]  # the first run builds JobSet, in minutes


@pytest.fixture(scope="module")
def own() -> Iterator[Space]:
    needs_own_cluster("installs Kubeflow Trainer")
    script("trainer", "up")
    with space() as space_:
        yield space_


@pytest.fixture
def settings(own: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("KUBECONFIG", own.facts.kubeconfig)
    return Settings(state=tmp_path, backend="kubernetes", namespace=own.name)


def make_spec(own: Space, name: str, command: list[str], **fields: Any) -> dict[str, Any]:
    volumes = [*map(dict, own.facts.volumes), {"name": "programs", "config_map": "programs", "mount_path": IN_POD}]
    volumes.append({"name": "data", "host_path": "/run/kfjob/shared", "mount_path": "/data"})
    return {
        "name": name,
        "target": "trainjob",
        "image": own.facts.image,
        "nodes": 2,
        "processes_per_node": 1,
        "command": command,
        "volumes": volumes,
        **fields,
    }


def test_job_is_followed_stopped_and_resumed(own: Space, settings: Settings):
    program = ["torchrun", "--no-python", "python3", "-c", PROGRAM, f"/data/{own.name}-steps", "100000"]
    run = kfjob.submit(make_spec(own, "train", program), settings=settings)
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
