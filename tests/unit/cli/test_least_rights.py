"""`master`, `status` and `logs` with no rights but to read pods and their logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kfjob.cluster.requests import Request
from tests.fakes.transport import FakeStream, refused, reply
from tests.unit.api.conftest import Shell
from tests.unit.api.script import block, progress
from tests.unit.cli.conftest import serve

RUNNING = json.loads((Path(__file__).parents[1] / "cluster" / "recorded" / "pod-running.json").read_text())
ALLOWED = {("get", "pods"), ("list", "pods"), ("get", "pods/log")}


def pod(index: int, phase: str = "Running") -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(json.dumps(RUNNING).replace("running-worker-1", f"train-worker-{index}"))
    manifest["metadata"]["uid"] = f"uid-{index}"
    manifest["metadata"]["labels"] |= {"training.kubeflow.org/replica-index": str(index)}
    manifest["status"]["phase"] = phase
    return manifest


class ReadOnlyServer:
    """An API server that allows only the requests in `ALLOWED`."""

    def __init__(self) -> None:
        self.pods = [pod(0), pod(1)]
        self.requests: set[tuple[str, str]] = set()

    def answer(self, request: Request) -> FakeStream:
        right = (request.verb, "pods/log" if request.path.endswith("/log") else request.resource)
        self.requests.add(right)
        if right not in ALLOWED:
            message = f'{request.resource} "{request.name}" is forbidden: User "u" cannot {request.verb} resource'
            return refused(403, "Forbidden", message, kind=request.resource)
        if request.verb == "list":
            return reply({"items": self.pods, "metadata": {"resourceVersion": "1"}})
        if right == ("get", "pods"):
            return reply(next(pod for pod in self.pods if pod["metadata"]["name"] == request.name))
        index = int(request.name.rpartition("-")[2])
        lines = [*block(index, 1 - index, 1), *([progress(1, 1, 8.0)] if index == 1 else [])]
        return reply("".join(f"2026-11-21T09:33:{30 + number}Z {line.text}\n" for number, line in enumerate(lines)))


@pytest.fixture
def server(here: Path, monkeypatch: pytest.MonkeyPatch) -> ReadOnlyServer:
    server = ReadOnlyServer()
    serve(server.answer, monkeypatch)
    return server


def test_master_and_logs_need_only_pods_and_pod_logs(server: ReadOnlyServer, kfjob: Shell):
    argv = ("master", "train", "--backend", "kubernetes", "-n", "ml")
    assert kfjob(*argv, "-o", "json") == 0, kfjob.err
    answer = json.loads(kfjob.out)
    assert (answer["pod"], answer["confidence"], answer["group_rank"]) == ("train-worker-1", "confirmed", 0)
    assert server.requests - ALLOWED == {("get", "pytorchjobs")}
    assert kfjob(*argv, "--all") == 0
    assert "train-worker-0" in kfjob.out
    assert kfjob("logs", "train", "--backend", "kubernetes", "-n", "ml", "--master", "--tail", "1") == 0
    assert "Batch 1 " in kfjob.out


def test_job_without_pods_is_forbidden(server: ReadOnlyServer, kfjob: Shell):
    server.pods = []
    assert kfjob("master", "train", "--backend", "kubernetes", "-n", "ml") == 4
    assert "pytorchjobs" in kfjob.err


@pytest.mark.parametrize(
    ("phases", "state"),
    [(("Running", "Pending"), "Running"), (("Pending", "Succeeded"), "Pending"), (("Failed", "Succeeded"), "Failed")],
)
def test_status_derives_the_phase_from_the_pods(server: ReadOnlyServer, kfjob: Shell, phases: tuple[str, ...], state: str):
    server.pods = [pod(index, phase) for index, phase in enumerate(phases)]
    assert kfjob("status", "train", "--backend", "kubernetes", "-n", "ml", "-o", "json") == 0
    assert json.loads(kfjob.out)["phase"] == state
