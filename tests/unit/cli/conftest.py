from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kfjob.api.target import Target
from kfjob.base.http import Stream
from kfjob.cluster.backend import KubernetesBackend
from kfjob.cluster.client import Client
from kfjob.cluster.requests import Request
from tests.fakes.transport import FakeTransport
from tests.unit.api.conftest import Shell
from tests.unit.cli.object_server import ObjectServer


@pytest.fixture
def cluster(here: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """A cluster whose API server only stores objects."""
    server = ObjectServer()
    serve(server.answer, monkeypatch)
    return server


def serve(answer: Callable[[Request], Stream], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every backend send its requests to `answer`."""
    client = Client(FakeTransport(answer), host="test")
    monkeypatch.setattr(Target, "_open_cluster", lambda _target: KubernetesBackend(client))


@pytest.fixture
def kfjob(capsys: pytest.CaptureFixture[str], here: Path) -> Shell:
    return Shell(capsys)
