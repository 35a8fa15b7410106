from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kfjob.cluster.backend import KubernetesBackend
from tests.cluster.facts import Space, needs_own_cluster, script
from tests.cluster.facts import space as make_space
from tests.cluster.guarded import Guard, Start
from tests.cluster.shell import Shell

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


@pytest.fixture(scope="module")
def guard_kubeconfig(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the guard, and return the kubeconfig of its service account; no pod can start with this image."""
    needs_own_cluster("writes checkpoints into a folder of the node")
    folder = tmp_path_factory.mktemp("guard")
    Shell(space, folder)("guard", "install", "--image", "registry.kfjob.test/no-such-image:1")
    config = yaml.safe_load(Path(space.facts.kubeconfig).read_text())
    token = script("kubectl", "-n", space.name, "create", "token", "kfjob-guard")
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def start_guard(space: Space, guard_kubeconfig: Path, tmp_path: Path) -> Iterator[Start]:
    guards: list[Guard] = []

    def start(*argv: str, setup: str = "", **variables: str) -> Guard:
        guards.append(Guard(space, guard_kubeconfig, tmp_path, len(guards), *argv, setup=setup, **variables))
        return guards[-1]

    yield start
    for guard in guards:
        if guard.process.poll() is None:
            guard.end(signal.SIGTERM)
