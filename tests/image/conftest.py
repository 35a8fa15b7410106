from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.image.aws import MotoAws, moto_aws


@pytest.fixture(scope="session")
def moto_server() -> Iterator[MotoAws]:
    with moto_aws() as server:
        yield server


@pytest.fixture
def aws(moto_server: MotoAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[MotoAws]:
    """An empty AWS account, and this process logged in to it."""
    clear_aws(monkeypatch)
    moto_server.reset()
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    yield moto_server
    moto_server.post("/moto-api/reset-auth", b"inf")


def clear_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own way into AWS is seen by a test."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
