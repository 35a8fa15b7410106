"""Check a cluster against a scripted API server, with states that the test cluster does not have."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from kfjob.api.doctor import cluster
from kfjob.api.doctor.findings import Finding, run_checks
from kfjob.cluster.client import Client
from kfjob.cluster.inventory import KubernetesInventory
from kfjob.cluster.requests import Request
from kfjob.kinds.registry import find_kind
from tests.fakes.transport import FakeStream, FakeTransport, refused, reply

KIND = find_kind("")
Respond = Callable[[Request], FakeStream]


def run_check(name: str, respond: Respond) -> list[Finding]:
    client = Client(FakeTransport(respond), host="test")
    return list(run_checks(cluster.CHECKS, cluster.Cluster(KubernetesInventory(client, "ml"), KIND), only=frozenset({name})))


def verdict(name: str, respond: Respond) -> tuple[str, str]:
    (finding,) = run_check(name, respond)
    return finding.verdict, finding.message


def serve(**by_resource: Any) -> Respond:
    def respond(request: Request) -> FakeStream:
        content = by_resource.get(request.resource)
        return reply(content) if content is not None else refused(404, "NotFound", "not found", kind=request.resource)

    return respond


def forbidden(_: Request) -> FakeStream:
    return refused(403, "Forbidden", 'User "me" cannot do that')


JOBS = {"resources": [{"name": "pytorchjobs"}]}


def definition(*fields: str) -> dict[str, Any]:
    policy = {"properties": {name: {"type": "string"} for name in fields}}
    spec = {"properties": {"elasticPolicy": {"type": "object"}, "runPolicy": policy}}
    schema = {"openAPIV3Schema": {"properties": {"spec": spec}}}
    return {"spec": {"versions": [{"served": True, "schema": schema}]}}


def deployment(ready: int) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "manager", "image": "ghcr.io/kubeflow/training-operator:v1"}]}}
    return {
        "metadata": {"namespace": "kubeflow", "name": "training-operator"},
        "spec": {"replicas": 1, "template": pod},
        "status": {"readyReplicas": ready} if ready else {},
    }


def node(ready: str = "True", labels: dict[str, str] | None = None, **allocatable: str) -> dict[str, Any]:
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": "n", "labels": labels or {}}, "status": status}


def test_crd_version_is_judged_by_its_fields():
    for fields, version in ((("managedBy",), "from operator 1.9 or newer"), ((), "from an operator before 1.9")):
        respond = serve(apis=JOBS, customresourcedefinitions=definition(*fields))
        assert verdict("crd", respond) == ("ok", f"PyTorchJob kubeflow.org/v1, {version}")
    assert verdict("crd", serve(apis=JOBS, customresourcedefinitions={"spec": {}}))[0] == "warn"


def test_operator_without_ready_pods_is_a_failure():
    (finding,) = run_check("operator", serve(deployments={"items": [deployment(0)]}))
    assert (finding.verdict, "0 of 1 ready" in finding.message) == ("fail", True)
    assert "kubectl -n kubeflow logs deployment/training-operator" in finding.remedy
    assert verdict("operator", serve(deployments={"items": [deployment(1)]}))[0] == "ok"
    (finding,) = run_check("operator", serve(deployments={"items": [deployment(0) | {"spec": {"replicas": None}}]}))
    assert "0 of 1 ready" in finding.message


def test_webhook_down_refusing_and_missing_differ():
    down = 'Internal error occurred: failed calling webhook "validator": connection refused'
    refuses = 'admission webhook "validator.pytorchjob" denied the request: spec is invalid'
    assert verdict("webhook", lambda _: refused(500, "InternalError", down))[0] == "fail"
    assert verdict("webhook", lambda _: refused(403, "Forbidden", refuses)) == ("ok", "answers")
    (missing,) = run_check(
        "webhook", lambda request: reply({**request.body, "metadata": {**request.body["metadata"], "uid": "u"}})
    )
    assert (missing.verdict, "operator 1.7 has none" in missing.message) == ("warn", True)
    assert verdict("webhook", forbidden)[0] == "warn"


def test_every_right_is_checked_and_missing_ones_are_grouped():
    reviews = []

    def respond(request: Request) -> FakeStream:
        assert request.body
        attributes = request.body["spec"]["resourceAttributes"]
        reviews.append(attributes)
        return reply({"status": {"allowed": attributes["verb"] not in {"watch", "create"}}})

    needed, useful = run_check("rights", respond)
    assert len(reviews) == len(KIND.permissions) + len(KIND.useful_permissions)
    assert all(review["namespace"] == "ml" for review in reviews)
    log = {"subresource": "log", "resource": "pods"}
    assert any(log.items() <= review.items() for review in reviews)  # the requests run in parallel
    assert needed.message == "missing in `ml`: pytorchjobs.kubeflow.org: create, watch; pods: watch"
    assert (needed.verdict, useful.verdict) == ("fail", "warn")


def test_nodes_and_devices_are_counted():
    gpus = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4"}
    kind = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    items = [node(labels=kind, **gpus), node(labels=kind, **gpus), node("False", labels=kind, **gpus)]
    nodes, devices = run_check("nodes", serve(nodes={"items": items}))
    assert (nodes.verdict, nodes.message) == ("ok", "2 of 3 ready: 2 x p4d.24xlarge")
    assert (devices.verdict, devices.message) == ("ok", "16 GPUs, 8 EFA interfaces")
    nodes, devices = run_check("nodes", serve(nodes={"items": [node("Unknown")]}))
    assert (nodes.verdict, devices.verdict) == ("fail", "warn")
    assert verdict("nodes", forbidden)[0] == "warn"


def test_local_queues_are_listed():
    kueue = {"resources": [{"name": "localqueues"}]}
    queue = {"items": [{"metadata": {"name": "team"}}]}
    assert verdict("queues", serve(apis=kueue, localqueues=queue)) == ("ok", "Kueue, local queues team")
    assert verdict("queues", serve(apis=kueue, localqueues={"items": []}))[0] == "warn"


def test_error_of_a_check_is_a_finding_and_other_checks_run():
    def respond(request: Request) -> FakeStream:
        return refused(500, "InternalError", "etcd is gone") if request.resource == "nodes" else reply({"items": []})

    client = Client(FakeTransport(respond), host="test")
    findings = list(run_checks(cluster.CHECKS, cluster.Cluster(KubernetesInventory(client, "ml"), KIND)))
    (failed,) = [finding for finding in findings if finding.name == "nodes"]
    assert (failed.verdict, "etcd is gone" in failed.message) == ("fail", True)
    assert findings[-1].name == "queues"
    assert json.dumps([asdict(finding) for finding in findings])
