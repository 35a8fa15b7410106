"""The metrics of guarded jobs, scraped over HTTP."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.base.errors import UsageError
from kfjob.base.units import SECOND
from kfjob.guard import run
from kfjob.guard.decision import Relaunch
from kfjob.guard.facts import extend_history
from kfjob.guard.metrics import JobCollector, serve_metrics
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, LogLine, Tick
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

LINES = (
    "2026-11-21 07:10:40 I [t.py:1] Batch 10 Loss: 3.5, Speed: 1.00 samples/sec, lr: 0.0001",
    "2026-11-21 07:10:50 I [t.py:1] Batch 20 Loss: 2.5, Speed: 1.00 samples/sec, lr: 0.0001",
)
LAST = 1795245050 * SECOND  # 2026-11-21 07:10:50 UTC
AGENT = "E1121 07:10:45.000000 1 torch/distributed/elastic/agent/server/api.py:1002]"
RESTART = f"{AGENT} [default] Worker group FAILED. 2/3 attempts left; will restart worker group"


def make_view(*lines: str, phase: JobPhase = JobPhase.RUNNING) -> JobView:
    history = extend_history((), Relaunch(launch="l1"), now=1)
    events = [LogLine(pod="train-worker-0", text=line) for line in lines]
    return reduce_all(JobView(relaunches=history), [JobChanged(phase=phase), *events, Tick(time=LAST + 30 * SECOND)])


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free: int = server.getsockname()[1]
        return free


def scrape(port: int) -> Mapping[tuple[str, str, str], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels["namespace"] + "/" + sample.labels["job"], sample.labels.get("phase", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_scrape_has_the_current_view_of_each_job(port):
    views = {"train": make_view(LINES[0], RESTART, LINES[1]), "new": JobView()}
    server = serve_metrics(port, JobCollector("team", lambda: views))
    try:
        metrics = scrape(port)
        figures = {
            name.removeprefix("kfjob_job_"): value
            for (name, job, phase), value in metrics.items()
            if job == "team/train" and not phase
        }
        assert figures == {"step": 20, "loss": 2.5, "seconds_since_progress": 30, "restarts": 2, "relaunches": 1}
        phases = {phase for (name, job, phase), value in metrics.items() if job == "team/train" and phase and value}
        assert phases == {"Running"}
        assert metrics["kfjob_job_phase", "team/new", "Pending"] == 1
        assert ("kfjob_job_loss", "team/new", "") not in metrics
        views["train"] = make_view(LINES[0], phase=JobPhase.FAILED)
        del views["new"]
        metrics = scrape(port)
        assert metrics["kfjob_job_step", "team/train", ""] == 10
        assert metrics["kfjob_job_phase", "team/train", "Failed"] == 1
        assert not [job for _, job, _ in metrics if job == "team/new"]
    finally:
        server.shutdown()
        server.server_close()


def test_port_in_use_is_a_usage_error():
    with socket.create_server(("::", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        with pytest.raises(UsageError, match=f"the metrics cannot use port {port}"):
            serve_metrics(port, JobCollector("team", dict))


def test_views_are_those_of_the_supervised_jobs_and_the_newer_launch_hides_the_one_it_replaces(monkeypatch, tmp_path):
    views = {"u1": JobView(lines=1), "u2": JobView(lines=2)}
    during: list[Mapping[str, JobView]] = []
    old, new = (JobSnapshot(name="train", namespace="team", job=JobChanged(phase=JobPhase.FAILED), uid=uid) for uid in views)

    class FakeSupervision:
        def __init__(self, _: object, job: JobSnapshot, *__: object, **___: object) -> None:
            self.view = views[job.uid]

        def run(self) -> None:
            during.append(guard.list_views())
            if len(during) == 1:
                guard._supervise(new)
                during.append(guard.list_views())

    monkeypatch.setattr(run, "Supervision", FakeSupervision)
    guard = run.Guard(Target(Settings(state=tmp_path), "kubernetes", "team"), print)
    guard._supervise(old)
    assert during == [{"train": views["u1"]}, {"train": views["u2"]}, {"train": views["u1"]}]
    assert guard.list_views() == {}
