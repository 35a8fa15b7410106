"""Posts of the progress to the status of a TrainJob; the server is one of this machine, with a certificate of its own."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.integrations.integration_utils import KubeflowCallback

from kfjob.trainer import job_status
from kfjob.trainer.job_status import JobStatusTracker
from tests.hostile_server import Answer, HostileServer, serve
from tests.image.registries import make_certificate


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HostileServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(make_certificate(tmp_path), tmp_path / "key.pem")
    with serve(lambda *_: Answer(), tls=context) as running:
        yield running


@pytest.fixture
def environ(server: HostileServer, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "token").write_text("pod-token\n")
    files = {job_status.CA_FILE: str(tmp_path / "cert.pem"), job_status.TOKEN_FILE: str(tmp_path / "token")}
    return {job_status.URL: f"{server.url}/apis/status", **files}


def read_reports(server: HostileServer) -> list[dict[str, Any]]:
    return [json.loads(request.body)["trainerStatus"] for request in server.received]


def wait_for_post(server: HostileServer) -> None:
    deadline = time.monotonic() + 30
    while not server.received and time.monotonic() < deadline:
        time.sleep(0.01)


def test_variables_are_those_of_the_callback_in_transformers():
    names = {name for name in vars(KubeflowCallback).values() if isinstance(name, str) and name.startswith("KUBEFLOW_")}
    assert names == {job_status.URL, job_status.CA_FILE, job_status.TOKEN_FILE}


def test_first_and_last_report_arrive(server: HostileServer, environ: dict[str, str]):
    tracker = JobStatusTracker(environ, total_steps=200)
    tracker.log_metrics(10, {"loss": 2.5, "grad_norm": 1.0})
    wait_for_post(server)
    for step in range(11, 51):
        tracker.log_metrics(step, {"loss": 2.0})
    tracker.log_metrics(50, {"eval_loss": 2.25})
    tracker.close()
    first, last = read_reports(server)  # what came in between was not posted: one post in five seconds
    assert first["progressPercentage"] == 5
    assert first["metrics"] == [{"name": "loss", "value": "2.5"}, {"name": "step", "value": "10"}]
    assert last["progressPercentage"] == 25
    assert {metric["name"]: metric["value"] for metric in last["metrics"]} == {"loss": "2", "eval_loss": "2.25", "step": "50"}
    assert last["estimatedRemainingSeconds"] >= 0
    assert {request.headers["Authorization"] for request in server.received} == {"Bearer pod-token"}


def test_server_that_is_not_trusted_gets_nothing(
    server: HostileServer, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    notes: list[str] = []
    monkeypatch.setattr(job_status, "log", SimpleNamespace(warning=lambda text, *values: notes.append(text % values)))
    tracker = JobStatusTracker(environ | {job_status.CA_FILE: ""}, total_steps=None)
    for step in range(3):
        tracker.log_metrics(step, {"loss": 2.0})
    tracker.close()
    assert server.received == []
    (note,) = notes
    assert "certificate verify failed" in note
    assert "pod-token" not in note
