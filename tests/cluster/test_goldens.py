"""Golden manifests on the real API server with the operator's CRD and webhook, and the environment that the operator adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.cluster import requests
from kfjob.objects import names
from kfjob.plan import JobPlan
from kfjob.plan.agent import operator_environment
from tests.cluster.facts import Space, submit, until
from tests.pytorchjobs import KIND

GOLDENS = sorted((Path(__file__).parents[1] / "golden" / "manifests").glob("*.yaml"))


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.stem)
def test_api_server_and_webhook_accept_the_golden(golden: Path, space: Space):
    for manifest in yaml.safe_load_all(golden.read_text(encoding="utf-8")):
        job = {**manifest, "metadata": {**manifest["metadata"], "namespace": space.name}}
        stored = space.client.call(requests.create(job, dry_run=True))
        assert stored["metadata"]["name"] == manifest["metadata"]["name"]
        assert find_differences(manifest["spec"], stored["spec"]) == []


def find_differences(manifest: Any, stored: Any, path: str = "spec") -> list[str]:
    """Return the paths whose values the server changed, except quantities, which it may rewrite."""
    if isinstance(manifest, dict):
        missing = [f"{path}.{key}" for key in manifest if key not in stored]
        return missing + [
            p for key in manifest if key in stored for p in find_differences(manifest[key], stored[key], f"{path}.{key}")
        ]
    if isinstance(manifest, list):
        differences = [
            p
            for index, (a, b) in enumerate(zip(manifest, stored, strict=False))
            for p in find_differences(a, b, f"{path}.{index}")
        ]
        adds_items = path == "spec.tolerations"  # admission adds two to every pod
        return differences + ([path] if len(manifest) != len(stored) and not adds_items else [])
    return [] if manifest == stored or ".resources." in path or path.endswith("sizeLimit") else [path]


SPECS: dict[str, dict[str, Any]] = {
    "c10d": {"nodes": 2},
    "static": {"nodes": 2, "rendezvous": "static", "processes_per_node": 3, "restarts": {"max": 2}},
    "master": {"nodes": 3, "master": True, "rendezvous": {"backend": "c10d", "port": 29400}, "processes_per_node": "auto"},
    "etcd": {
        "nodes": 2,
        "elastic": {"min": 1, "max": 3},
        "rendezvous": {"backend": "etcd-v2", "endpoint": "etcd.nowhere:2379"},
    },
    "accelerate": {"nodes": 2, "launcher": "accelerate", "processes_per_node": 2, "env": {"A": "1"}},
}


@pytest.fixture(scope="module")
def plans(space: Space) -> dict[str, JobPlan]:
    """Submit a job of each spec, and return their plans."""
    plans = {name: space.plan(f"environment-{name}", ["true"], **spec) for name, spec in SPECS.items()}
    with space.open() as backend:
        for plan in plans.values():
            submit(backend, plan)
    return plans


@pytest.mark.parametrize("spec", SPECS)
def test_operator_environment_equals_the_pods_environment(spec: str, plans: dict[str, JobPlan], space: Space):
    plan = plans[spec]
    pods = wait_for_pods(space, plan.name, plan.spec.nodes)
    for index, pod in enumerate(plan.pods):
        (container,) = pods[pod]["spec"]["containers"]
        real = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert real == dict(plan.env) | operator_environment(plan, index), pod


def wait_for_pods(space: Space, job: str, count: int) -> dict[str, Any]:
    """Wait until the job has `count` pods, and return them by name."""
    request = requests.select_dependents(KIND, "pods", space.name, job).list_request()
    until(lambda: len(space.client.call(request)["items"]) >= count)
    return {pod["metadata"]["name"]: pod for pod in space.client.call(request)["items"]}


def test_dry_run_goes_through_the_webhook(space: Space):
    """This proves that the tests above can fail."""
    manifest = yaml.safe_load((GOLDENS[0]).read_text(encoding="utf-8").split("\n---\n")[0])
    manifest["metadata"] |= {"namespace": space.name, "name": "not.a.dns-1035-label"}
    with pytest.raises(Exception, match=r"DNS-1035|metadata\.name"):
        space.client.call(requests.create(manifest, dry_run=True))
    assert names.find_dns_1035_problem("not.a.dns-1035-label")
