"""Every golden against the real API server, with the operator's CRD and webhook; and what the operator adds to real pods."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.backends.base import JobRef
from kfjob.backends.kubernetes import requests
from kfjob.compile.torchrun import operator_environment
from kfjob.spec import names
from tests.cluster.facts import PATIENCE, Space

GOLDENS = sorted((Path(__file__).parents[1] / "golden" / "manifests").glob("*.yaml"))


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.stem)
def test_the_api_server_and_the_webhook_take_it(golden: Path, space: Space):
    for manifest in yaml.safe_load_all(golden.read_text(encoding="utf-8")):
        mine = {**manifest, "metadata": {**manifest["metadata"], "namespace": space.name}}
        kept = space.client.call(requests.create(mine, dry_run=True))
        assert kept["metadata"]["name"] == manifest["metadata"]["name"]
        assert missing(manifest["spec"], kept["spec"]) == []


def missing(sent: Any, kept: Any, path: str = "spec") -> list[str]:
    """The places where the server did not keep what was sent; quantities it may write in another way."""
    if isinstance(sent, dict):
        gone = [f"{path}.{key}" for key in sent if key not in kept]
        return gone + [p for key in sent if key in kept for p in missing(sent[key], kept[key], f"{path}.{key}")]
    if isinstance(sent, list):
        found = [p for index, (a, b) in enumerate(zip(sent, kept, strict=False)) for p in missing(a, b, f"{path}.{index}")]
        return found + ([path] if len(sent) != len(kept) else [])
    return [] if sent == kept or ".resources." in path or path.endswith("sizeLimit") else [path]


@pytest.mark.parametrize(
    "spec",
    [
        {"nodes": 2},
        {"nodes": 2, "rendezvous": "static", "processes_per_node": 3, "restarts": {"max": 2}},
        {"nodes": 3, "master": True, "rendezvous": {"backend": "c10d", "port": 29400}, "processes_per_node": "auto"},
        {"nodes": 2, "elastic": {"min": 1, "max": 3}, "rendezvous": {"backend": "etcd-v2", "endpoint": "etcd.nowhere:2379"}},
        {"nodes": 2, "launcher": "accelerate", "processes_per_node": 2, "env": {"A": "1"}},
    ],
    ids=["c10d", "static", "master-c10d", "etcd", "accelerate"],
)
def test_the_environment_that_we_foretell_is_that_of_the_pods(spec: dict[str, Any], space: Space, name: str):
    plan = space.plan(name, ["true"], **spec)
    with space.open() as backend:
        ref = backend.submit(plan)
        pods = created(space, name, plan.nodes)
        stop(backend, ref)
    for index, pod in enumerate(plan.pods):
        (container,) = pods[pod]["spec"]["containers"]
        real = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert real == dict(plan.env) | operator_environment(plan, index), pod


def created(space: Space, job: str, count: int) -> dict[str, Any]:
    """The job's pods, once they are there; they need not run."""
    deadline = time.monotonic() + PATIENCE
    while True:
        listing = space.client.call(requests.of_job("pods", space.name, job).listing())
        if len(listing["items"]) >= count:
            return {pod["metadata"]["name"]: pod for pod in listing["items"]}
        assert time.monotonic() < deadline, f"the operator made {len(listing['items'])} of {count} pods"
        time.sleep(0.2)


def stop(backend: Any, ref: JobRef) -> None:
    backend.stop(ref, timeout=PATIENCE)


def test_a_job_that_the_webhook_refuses_is_refused_here_too(space: Space):
    """So that the tests above mean something: the dry run does go through the webhook."""
    manifest = yaml.safe_load((GOLDENS[0]).read_text(encoding="utf-8").split("\n---\n")[0])
    manifest["metadata"] |= {"namespace": space.name, "name": "not.a.dns-1035-label"}
    with pytest.raises(Exception, match=r"DNS-1035|metadata\.name"):
        space.client.call(requests.create(manifest, dry_run=True))
    assert names.find_dns_1035_problem("not.a.dns-1035-label")
