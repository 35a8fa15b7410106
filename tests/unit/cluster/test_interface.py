"""Each backend has all methods of its interface; mypy checks their signatures where a backend is assigned."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from kfjob.backends import base
from kfjob.cluster.backend import KubernetesBackend
from kfjob.cluster.client import Client
from kfjob.local.backend import LocalBackend
from tests.fakes.backend import EmptyInventory, FakeBackend
from tests.fakes.transport import FakeTransport, reply


def client() -> Client:
    return Client(FakeTransport(lambda _: reply({})), host="https://cluster")


def test_a_cluster_has_the_interface_of_a_cluster():
    clusters: list[base.ClusterBackend] = [KubernetesBackend(client()), FakeBackend()]
    inventories: list[base.Inventory] = [KubernetesBackend(client()).inventory("ml"), EmptyInventory("ml")]
    assert [inventory.namespace for inventory in inventories] == ["ml", "ml"]
    assert [cluster.name for cluster in clusters] == ["kubernetes", "kubernetes"]


def test_this_machine_has_the_interface_of_a_machine(tmp_path: Path):
    machine: base.MachineBackend = LocalBackend(state=tmp_path)
    assert machine.name == "local"


@pytest.mark.parametrize(
    ("backend", "interface"),
    [
        (KubernetesBackend, base.ClusterBackend),
        (FakeBackend, base.ClusterBackend),
        (LocalBackend, base.MachineBackend),
    ],
)
def test_parameter_names_are_those_of_the_interface(backend: type, interface: type):
    for name, method in inspect.getmembers(interface, inspect.isfunction):
        if not name.startswith("_"):
            expected = list(inspect.signature(method).parameters)
            assert list(inspect.signature(getattr(backend, name)).parameters) == expected, name
