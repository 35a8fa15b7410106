from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfjob.backends.kubernetes.backend import KubernetesBackend
from tests.cluster.facts import Space
from tests.cluster.facts import space as make_space

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test in this folder needs the cluster."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="module")
def space() -> Iterator[Space]:
    """A namespace for the tests of one file."""
    with make_space() as made:
        yield made


@pytest.fixture
def backend(space: Space) -> Iterator[KubernetesBackend]:
    with space.open() as opened:
        yield opened


@pytest.fixture
def name() -> str:
    """A job name that no other test uses."""
    return f"job-{os.urandom(4).hex()}"
