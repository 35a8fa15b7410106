"""A command that waits for longer than a moment says for what, and how long at most."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfjob.base import concurrency
from kfjob.base.concurrency import Task, reporting_waits, waiting_for
from kfjob.base.http import Limits
from kfjob.cli.commands import run
from kfjob.cli.output import WaitPrinter

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: x}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "SLOW_SECONDS", 0.01)


@pytest.fixture
def silent_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Accept connections and never answer; a command with this kubeconfig gives up after a second."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        file = tmp_path / "kubeconfig"
        port = server.getsockname()[1]
        file.write_text(KUBECONFIG.format(port=port))
        monkeypatch.setenv("KUBECONFIG", str(file))
        monkeypatch.setenv("KFJOB_STATE", str(tmp_path / "state"))
        monkeypatch.delenv("KFJOB_BACKEND", raising=False)
        limits = Limits(start_seconds=0.2, attempts=1)
        monkeypatch.setattr("kfjob.cluster.client.READS", limits)
        monkeypatch.setattr("kfjob.cluster.client.CHANGES", limits)
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    "command",
    [
        "list", "list -o json", "status job", "watch job", "wait job", "stop job", "relaunch job", "logs job", "master job",
        "diagnose job", "report job", "submit job.yaml --no-image-check", "apply job.yaml", "diff job.yaml",
        "preflight job.yaml",
    ],
)  # fmt: skip
def test_a_command_names_the_server_that_does_not_answer(
    command, silent_server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("name: job\nimage: a:1\ncommand: 'true'\n")
    assert run(command.split()) == 5
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count(f"note: waiting for the API server `{silent_server}` (at most ") == 1


def test_a_wait_is_printed_once_with_its_limit(capsys: pytest.CaptureFixture[str]):
    printer = WaitPrinter()
    for _ in range(3):
        printer("the pods of `a` to end", 300.0)
    printer("`a` to end", None)
    assert capsys.readouterr().err == "note: waiting for the pods of `a` to end (at most 5m)\nnote: waiting for `a` to end\n"


def test_a_short_wait_is_not_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(concurrency, "SLOW_SECONDS", 60.0)
    waits: list[str] = []
    with reporting_waits(lambda what, _: waits.append(what)):
        assert Task(lambda: 1, name="short").result(timeout=100.0, waits_for="a number") == 1
        with waiting_for("nothing"):
            pass
    assert waits == []


def test_a_long_wait_is_reported_and_its_result_returned():
    reported = threading.Event()
    with reporting_waits(lambda *_: reported.set()):
        assert Task(lambda: reported.wait(30), name="long").result(timeout=60.0, waits_for="a report")
        reported.clear()
        with waiting_for("a block"):
            assert reported.wait(30)


def test_a_wait_has_its_timeout_though_it_is_reported():
    with pytest.raises(TimeoutError):
        Task(threading.Event().wait, name="endless").result(timeout=0.05, waits_for="nothing")
