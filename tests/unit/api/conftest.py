from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.api import context
from kfjob.backends.fake import FakeBackend
from kfjob.cli.main import run


@pytest.fixture
def fake(here: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """A scripted cluster in the place of the real one, and settings of nobody."""
    backend = FakeBackend()
    real = context.open_backend
    monkeypatch.setattr(
        context, "open_backend", lambda settings, name: backend if name == "kubernetes" else real(settings, name)
    )
    return backend


class Shell:
    """The command line, called in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *argv: str) -> int:
        code = run(list(argv))
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.err
        return code


@pytest.fixture
def kfjob(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)
