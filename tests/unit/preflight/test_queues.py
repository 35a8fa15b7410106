"""Kueue's webhook suspends a job in a queue; a job that a dry run leaves running is not Kueue's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kfjob.api.capacity.queues import explain_ignored, ignores_queue
from kfjob.api.preflight.cluster import PreflightJob, _find_topology_problem
from kfjob.backends.base import Inventory
from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import Refused
from kfjob.kinds.registry import KINDS
from kfjob.spec.scheduling import Topology

KIND = KINDS["PyTorchJob"]
JOB: dict[str, Any] = {"metadata": {"name": "train"}, "spec": {"runPolicy": {}}}


@pytest.mark.parametrize(("suspend", "ignored"), [(True, False), (False, True)])
def test_dry_run_shows_whether_kueue_suspends_the_job(*, suspend: bool, ignored: bool):
    stored = {**JOB, "spec": {"runPolicy": {"suspend": suspend}}}
    cluster = cast("Inventory", SimpleNamespace(dry_run_create=lambda *_: stored))
    assert ignores_queue(cluster, KIND, JOB) is ignored


def test_refused_dry_run_shows_nothing():
    def refuse(_api_version: str, _resource: str, _job: JsonMapping) -> None:
        raise Refused("no")

    assert not ignores_queue(cast("Inventory", SimpleNamespace(dry_run_create=refuse)), KIND, JOB)


@pytest.mark.parametrize(
    ("level", "problem"),
    [
        ("cloud.provider.com/topology-block", ""),
        ("cloud.provider.com/topology-rack", "no Topology of the cluster has the level `cloud.provider.com/topology-rack`"),
    ],
)
def test_topology_needs_its_level(level: str, problem: str):
    topologies = [{"spec": {"levels": [{"nodeLabel": "cloud.provider.com/topology-block"}]}}, {"spec": {}}]
    cluster = SimpleNamespace(list_objects=lambda *_, **__: topologies)
    scheduling = SimpleNamespace(topology=Topology(preferred=level))
    job = cast("PreflightJob", SimpleNamespace(cluster=cluster, plan=SimpleNamespace(scheduling=scheduling)))
    assert _find_topology_problem(job, "kueue.x-k8s.io/v1beta2") == problem


def test_hint_names_the_integration():
    assert "`kubeflow.org/pytorchjob`" in explain_ignored(KIND)[1]
