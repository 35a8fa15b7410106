from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kfjob.api import context
from kfjob.backends.kubernetes.backend import KubernetesBackend
from kfjob.backends.kubernetes.client import Backoff, Client
from kfjob.backends.kubernetes.fake import FakeTransport
from kfjob.backends.kubernetes.requests import Request
from kfjob.backends.kubernetes.transport import Stream
from tests.unit.api.conftest import Shell
from tests.unit.cli.objects import Objects


@pytest.fixture
def cluster(here: Path, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """An API server that keeps objects and does nothing else."""
    objects = Objects()
    serve(objects.answer, monkeypatch)
    return objects


def serve(answer: Callable[[Request], Stream], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every backend that is opened ask an API server that answers so."""
    client = Client(FakeTransport(answer), host="test", backoff=Backoff(first=0.0, most=0.0))
    monkeypatch.setattr(context, "open_backend", lambda *_: KubernetesBackend(client))


@pytest.fixture
def kfjob(capsys: pytest.CaptureFixture[str], here: Path) -> Shell:
    return Shell(capsys)
