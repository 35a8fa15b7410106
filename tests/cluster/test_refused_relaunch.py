"""A relaunch that the API server would refuse stops nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kfjob
from kfjob.api.settings import Settings
from kfjob.base.errors import KfjobError, Refused
from kfjob.joblog.events import JobPhase
from tests.cluster.facts import Space, space, until

JOBS = "count/pytorchjobs.kubeflow.org"


@pytest.fixture
def own() -> Iterator[Space]:
    with space() as own:
        yield own


def submit(own: Space, state: Path) -> tuple[kfjob.Run, Settings]:
    settings = Settings(state=state, backend="kubernetes", namespace=own.name)
    run = kfjob.submit(make_spec(own), settings=settings)
    until(lambda: run.snapshot().job.phase is JobPhase.RUNNING)
    return run, settings


def make_spec(own: Space) -> dict[str, Any]:
    return {"name": "train", "image": own.facts.image, "command": ["sleep", "3600"], "pod": {"grace": 1}}


def limit_jobs(own: Space, count: int) -> None:
    """Set the quota of jobs, and wait until the cluster applies it."""
    quotas, name = f"/api/v1/namespaces/{own.name}/resourcequotas", f"jobs-{count}"
    own.send("POST", quotas, {"metadata": {"name": name}, "spec": {"hard": {JOBS: str(count)}}})
    until(lambda: JOBS in (own.send("GET", f"{quotas}/{name}").get("status") or {}).get("hard", {}))


def test_refused_relaunch_leaves_the_job_running(own: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBECONFIG", own.facts.kubeconfig)
    run, settings = submit(own, tmp_path)
    uid = run.snapshot().uid
    with pytest.raises(KfjobError, match="annotations"):
        run.relaunch(changes={"job_annotations": {"notes": "x" * 300_000}})
    limit_jobs(own, 1)
    again = run.relaunch()  # the live job has the only place in the quota, and leaves it
    assert again.snapshot().uid != uid
    until(lambda: again.snapshot().job.phase is JobPhase.RUNNING)
    own.send("DELETE", f"/api/v1/namespaces/{own.name}/resourcequotas/jobs-1")
    limit_jobs(own, 0)
    with pytest.raises(Refused) as refused:
        again.relaunch()
    assert "exceeded quota: jobs-0" in (refused.value.cause or "")
    with pytest.raises(Refused):
        kfjob.submit(make_spec(own), replace=True, settings=settings)
    assert again.snapshot().job.phase is JobPhase.RUNNING
    again.stop()
