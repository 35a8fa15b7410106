"""A kind of job that a test defines is submitted, followed, asked for its master, stopped and relaunched."""

from __future__ import annotations

from pathlib import Path

import pytest

import kfjob
from kfjob.api.settings import Settings
from kfjob.cluster import requests
from kfjob.joblog.events import JobPhase, LogLine
from kfjob.joblog.master.evidence import Confidence
from kfjob.kinds import registry
from tests.cluster.facts import Space, space, until
from tests.cluster.indexed_jobs import IndexedJob

PROGRAM = """
import os, time
for step in range(1, 100000):
    if os.environ["JOB_COMPLETION_INDEX"] == "0":
        print(f"2026-06-12 00:08:25 I [train.py:102] Batch {step} Loss: {9 / step:.5f}, "
              "Speed: 0.43 samples/sec, lr: 0.000091", flush=True)
    time.sleep(0.2)
"""


@pytest.fixture
def own_kind(monkeypatch: pytest.MonkeyPatch) -> IndexedJob:
    kind = IndexedJob()
    monkeypatch.setitem(registry.KINDS, kind.name, kind)
    return kind


def test_own_kind_is_submitted_followed_stopped_and_relaunched(
    own_kind: IndexedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with space() as own:
        monkeypatch.setenv("KUBECONFIG", own.facts.kubeconfig)
        settings = Settings(state=tmp_path, backend="kubernetes", namespace=own.name, job_kind=own_kind.name)
        spec = make_spec(own)
        run = kfjob.submit(spec, settings=settings)
        try:
            check_launch(run)
            live = own.client.call(requests.get_job(own_kind, own.name, "train"))
            assert live["spec"]["completionMode"] == "Indexed"
            again = run.relaunch()
            assert again.launch != run.launch
            check_launch(again)
            (listed,) = kfjob.list_jobs(settings=settings)
            assert (listed.name, listed.job_kind) == ("train", "Job")
        finally:
            archive = kfjob.stop("train", settings=settings)
        assert archive is not None
        assert any("Batch 1 Loss" in log.read_text() for log in archive.rglob("pytorch.log"))
        assert kfjob.list_jobs(settings=settings) == []
        assert not own.client.call(requests.select_dependents(own_kind, "pods", own.name, "train").list_request()).get("items")


def make_spec(own: Space) -> dict[str, object]:
    return {
        "name": "train",
        "image": own.facts.image,
        "nodes": 2,
        "processes_per_node": 1,
        "command": ["python3", "-c", PROGRAM],
        "pod": {"grace": 1},  # pid 1 ignores SIGTERM
    }


def check_launch(run: kfjob.Run) -> None:
    """Check that the job runs, and that its first index is found as the master by its progress."""
    until(lambda: run.snapshot().job.phase is JobPhase.RUNNING)
    seen = (event for _, event in run.follow() if isinstance(event, LogLine) and "Batch 3" in event.text)
    line = next(seen)
    master = run.master()
    assert master.confidence is Confidence.CONFIRMED
    assert master.pod == line.pod
    assert line.pod.startswith("train-0-")
    pods = {pod.replica_index: pod.host for pod in run.snapshot().pods}
    assert pods == {0: "train-0.train", 1: "train-1.train"}
