from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, cast

import pytest

from tests.contract.side import Side


class _Module(Protocol):
    def side(self, folder: Path) -> AbstractContextManager[Side]: ...


SIDES = [
    pytest.param("local", marks=pytest.mark.local),
    pytest.param("kubernetes", marks=pytest.mark.cluster),
    pytest.param("trainjob", marks=[pytest.mark.cluster, pytest.mark.long]),  # builds Trainer
]


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    module = cast("_Module", importlib.import_module(f"tests.contract.{request.param}_side"))
    with module.side(tmp_path_factory.mktemp("side")) as ready:
        yield ready


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A job name that no other test and no other run uses."""
    number = sum(request.node.name.encode()) % 1000
    return f"contract-{number}-{os.getpid()}-{os.urandom(2).hex()}"
