from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfjob.cluster.backend import KubernetesBackend
from tests.cluster.facts import Space
from tests.cluster.facts import space as make_space

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test in this folder as a cluster test."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="module")
def space() -> Iterator[Space]:
    """Yield a namespace for the tests of one file."""
    with make_space() as namespace:
        yield namespace


@pytest.fixture
def backend(space: Space) -> Iterator[KubernetesBackend]:
    with space.open() as kubernetes:
        yield kubernetes


@pytest.fixture
def name() -> str:
    """Return a job name that no other test uses."""
    return f"job-{os.urandom(4).hex()}"
