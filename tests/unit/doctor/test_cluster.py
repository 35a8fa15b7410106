"""The cluster's checks against an API server of our making: what the test cluster cannot be made to say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kfjob.api.doctor import cluster
from kfjob.api.doctor.findings import Finding, run
from kfjob.backends.kubernetes.client import Backoff, Client
from kfjob.backends.kubernetes.fake import FakeStream, FakeTransport, refused, reply
from kfjob.backends.kubernetes.inventory import KubernetesInventory
from kfjob.backends.kubernetes.requests import Request

Answer = Callable[[Request], FakeStream]


def look(name: str, answer: Answer) -> list[Finding]:
    client = Client(FakeTransport(answer), host="test", backoff=Backoff(first=0.0, most=0.0))
    return list(run(cluster.CHECKS, KubernetesInventory(client, "ml"), only=frozenset({name})))


def verdict(name: str, answer: Answer) -> tuple[str, str]:
    (finding,) = look(name, answer)
    return finding.verdict, finding.said


def answering(**by_resource: Any) -> Answer:
    def answer(request: Request) -> FakeStream:
        found = by_resource.get(request.resource)
        return reply(found) if found is not None else refused(404, "NotFound", "not found", kind=request.resource)

    return answer


def forbidden(_: Request) -> FakeStream:
    return refused(403, "Forbidden", 'User "me" cannot do that')


JOBS = {"resources": [{"name": "pytorchjobs"}]}


def definition(*fields: str) -> dict[str, Any]:
    policy = {"properties": {name: {"type": "string"} for name in fields}}
    spec = {"properties": {"elasticPolicy": {"type": "object"}, "runPolicy": policy}}
    schema = {"openAPIV3Schema": {"properties": {"spec": spec}}}
    return {"spec": {"versions": [{"served": True, "schema": schema}]}}


def deployment(ready: int) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"image": "ghcr.io/kubeflow/training-operator:v1"}]}}
    return {
        "metadata": {"namespace": "kubeflow", "name": "training-operator"},
        "spec": {"replicas": 1, "template": pod},
        "status": {"readyReplicas": ready} if ready else {},
    }


def node(ready: str = "True", labels: dict[str, str] | None = None, **allocatable: str) -> dict[str, Any]:
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": "n", "labels": labels or {}}, "status": status}


def test_a_cluster_without_the_operator():
    (finding,) = look("crd", answering(apis={"resources": []}))
    assert (finding.verdict, finding.remedy) == ("fail", cluster.INSTALL)
    assert verdict("operator", answering(deployments={"items": []}))[0] == "fail"


def test_the_version_of_the_definition_is_told_by_its_fields():
    for fields, said in ((("managedBy",), "of operator 1.9 or newer"), ((), "of an operator before 1.9")):
        answer = answering(apis=JOBS, customresourcedefinitions=definition(*fields))
        assert verdict("crd", answer) == ("ok", f"PyTorchJob kubeflow.org/v1, {said}")
    assert verdict("crd", answering(apis=JOBS, customresourcedefinitions={"spec": {}}))[0] == "warn"


def test_an_operator_that_is_not_ready():
    (finding,) = look("operator", answering(deployments={"items": [deployment(0)]}))
    assert (finding.verdict, "0 of 1 ready" in finding.said) == ("fail", True)
    assert "kubectl -n kubeflow logs deployment/training-operator" in finding.remedy
    assert verdict("operator", answering(deployments={"items": [deployment(1)]}))[0] == "ok"


def test_a_webhook_that_is_down_is_told_from_one_that_refuses_and_from_none():
    down = 'Internal error occurred: failed calling webhook "validator": connection refused'
    refuses = 'admission webhook "validator.pytorchjob" denied the request: spec is invalid'
    assert verdict("webhook", lambda _: refused(500, "InternalError", down))[0] == "fail"
    assert verdict("webhook", lambda _: refused(403, "Forbidden", refuses)) == ("ok", "answers")
    (none,) = look("webhook", lambda request: reply(request.body))
    assert (none.verdict, "operator 1.7 has none" in none.said) == ("warn", True)
    assert verdict("webhook", forbidden)[0] == "warn"


def test_rights_are_asked_for_one_by_one_and_grouped():
    asked = []

    def answer(request: Request) -> FakeStream:
        assert request.body
        attributes = request.body["spec"]["resourceAttributes"]
        asked.append(attributes)
        return reply({"status": {"allowed": attributes["verb"] != "watch"}})

    needed, useful = look("rights", answer)
    assert len(asked) == len(cluster.NEEDED) + len(cluster.USEFUL)
    assert all(one["namespace"] == "ml" for one in asked)
    assert {"subresource": "log", "resource": "pods"}.items() <= next(one for one in asked if "subresource" in one).items()
    assert needed.said == "missing in `ml`: pytorchjobs.kubeflow.org: watch; pods: watch"
    assert (needed.verdict, useful.verdict) == ("fail", "warn")


def test_nodes_and_their_devices():
    gpus = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4"}
    kind = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    items = [node(labels=kind, **gpus), node(labels=kind, **gpus), node("False", labels=kind, **gpus)]
    nodes, devices = look("nodes", answering(nodes={"items": items}))
    assert (nodes.verdict, nodes.said) == ("ok", "2 of 3 ready: 2 x p4d.24xlarge")
    assert (devices.verdict, devices.said) == ("ok", "16 GPUs, 8 EFA interfaces")
    nodes, devices = look("nodes", answering(nodes={"items": [node("Unknown")]}))
    assert (nodes.verdict, devices.verdict) == ("fail", "warn")
    assert verdict("nodes", forbidden)[0] == "warn"


def test_queues():
    there = {"resources": [{"name": "localqueues"}]}
    queue = {"items": [{"metadata": {"name": "team"}}]}
    assert verdict("queues", answering()) == ("ok", "no Kueue: jobs start as nodes are free")
    assert verdict("queues", answering(apis=there, localqueues=queue)) == ("ok", "Kueue, local queues team")
    assert verdict("queues", answering(apis=there, localqueues={"items": []}))[0] == "warn"


def test_an_error_of_a_check_is_a_finding_and_the_others_go_on():
    def answer(request: Request) -> FakeStream:
        return refused(500, "InternalError", "etcd is gone") if request.resource == "nodes" else reply({"items": []})

    client = Client(FakeTransport(answer), host="test", backoff=Backoff(first=0.0, most=0.0))
    found = list(run(cluster.CHECKS, KubernetesInventory(client, "ml")))
    (failed,) = [one for one in found if one.name == "nodes"]
    assert (failed.verdict, "etcd is gone" in failed.said) == ("fail", True)
    assert found[-1].name == "queues"
    assert json.dumps([vars(one) for one in found])
