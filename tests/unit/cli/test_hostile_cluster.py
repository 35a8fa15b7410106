"""`doctor` and `preflight` against an API server that sends any part of its objects wrong: findings or one error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kfjob.cluster.requests import Request
from tests.fakes.transport import FakeStream, refused, reply
from tests.unit.api.conftest import Shell
from tests.unit.changes import changes
from tests.unit.cli.conftest import serve
from tests.unit.conftest import KUBECONFIG_OF_A_PORT
from tests.unit.doctor.test_cluster import definition, deployment

SPEC = """\
name: train
image: registry.invalid/a@sha256:0000000000000000000000000000000000000000000000000000000000000000
nodes: 2
command: torchrun train.py
resources: {gpus: 16, memory: 64Gi}
volumes: [{name: data, mount_path: /data, pvc: shared}]
scheduling: {priority_class: high}
"""
NODE = {
    "metadata": {"name": "n", "uid": "n", "labels": {"node.kubernetes.io/instance-type": "p4d.24xlarge", "a": "b"}},
    "spec": {"taints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}], "unschedulable": False},
    "status": {
        "nodeInfo": {"architecture": "amd64"},
        "allocatable": {"cpu": "96", "memory": "1100Gi", "nvidia.com/gpu": "8", "pods": "100", "vpc.amazonaws.com/efa": "4"},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T06:37:49Z"}],
    },
}
POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "p", "creationTimestamp": "2026-11-21T06:37:49Z"},
    "spec": {"nodeName": "n", "containers": [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": "4", "cpu": "500m"}}}]},
    "status": {"phase": "Running"},
}
QUOTA = {
    "metadata": {"name": "q", "uid": "q"},
    "spec": {"hard": {"requests.nvidia.com/gpu": "8", "pods": "10"}},
    "status": {"hard": {"requests.nvidia.com/gpu": "8", "pods": "10"}, "used": {"requests.nvidia.com/gpu": "4", "pods": "1"}},
}
CLAIM = {
    "metadata": {"name": "shared", "uid": "c"},
    "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "efs", "resources": {"requests": {"storage": "1Gi"}}},
    "status": {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}},
}
OBJECTS: dict[str, Any] = {
    "nodes": [NODE],
    "pods": [POD],
    "resourcequotas": [QUOTA],
    "persistentvolumeclaims": [CLAIM],
    "storageclasses": [{"metadata": {"name": "efs", "uid": "s"}, "provisioner": "efs.csi.aws.com"}],
    "priorityclasses": [{"metadata": {"name": "high", "uid": "h"}, "value": 1000}],
    "serviceaccounts": [{"metadata": {"name": "default", "uid": "d"}, "imagePullSecrets": [{"name": "pull"}]}],
    "secrets": [{"metadata": {"name": "pull", "uid": "x"}, "data": {".dockerconfigjson": "e30="}}],
    "namespaces": [{"metadata": {"name": "default", "uid": "d", "labels": {}}, "status": {"phase": "Active"}}],
    "deployments": [deployment(1)],
    "daemonsets": [{"metadata": {"name": "nvidia", "namespace": "gpu", "uid": "g"}, "status": {"numberReady": 1}}],
    "customresourcedefinitions": [definition("managedBy")],
    "localqueues": [{"metadata": {"name": "q", "uid": "q"}, "spec": {"clusterQueue": "c"}}],
    "selfsubjectaccessreviews": [{"status": {"allowed": True}}],
    "apis": [{"resources": [{"name": "pytorchjobs"}, {"name": "nodepools"}, {"name": "localqueues"}]}],
    "version": [{"gitVersion": "v1.34.1", "major": "1", "minor": "34"}],
}
WRONG: tuple[Any, ...] = (
    None, True, 0, -1, 10**30, 1e300, "", "x", "9" * 5000, "\u00b2", "1e99999", "\x1b]0;a\x07", "2026-13-45T99:99:99Z", [],
    [None], {}, {"a": []}, {"": None},
)  # fmt: skip
COMMANDS = ("doctor", "preflight job.yaml", "list")


def answer(objects: dict[str, Any]) -> Any:
    def respond(request: Request) -> FakeStream:
        items = objects.get(request.resource)
        if items is None or request.resource == "pytorchjobs":
            return refused(404, "NotFound", "not found", kind=request.resource)
        if request.verb == "list" and request.resource not in ("apis", "version"):
            return reply({"metadata": {"resourceVersion": "7"}, "items": items})
        return reply(items[0] if items else {})

    return respond


def check(kfjob: Shell, monkeypatch: pytest.MonkeyPatch, objects: dict[str, Any]) -> None:
    serve(answer(objects), monkeypatch)
    for command in COMMANDS:
        code = kfjob(*command.split(), "--backend", "kubernetes")
        assert code in (0, 1, 2, 3, 4, 5), (command, code, kfjob.err)
        assert "Error(" not in kfjob.out + kfjob.err
        assert "\x1b]" not in kfjob.out + kfjob.err
        assert len(kfjob.err) < 5000


@pytest.fixture
def job_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (here / "job.yaml").write_text(SPEC)
    monkeypatch.setattr("kfjob.api.preflight.examine.check_images", lambda *_args, **_options: None)
    monkeypatch.setattr("kfjob.api.doctor.machine.CHECKS", {})
    monkeypatch.setattr("kfjob.api.doctor.aws.CHECKS", {})
    (here / "kubeconfig").write_text(KUBECONFIG_OF_A_PORT.format(port=1))
    return here / "job.yaml"


def test_objects_as_they_are(kfjob: Shell, job_file: Path, monkeypatch: pytest.MonkeyPatch):
    check(kfjob, monkeypatch, OBJECTS)
    assert kfjob("preflight", "job.yaml", "--backend", "kubernetes") in (0, 1), kfjob.err
    assert kfjob("doctor", "nodes", "operator", "--backend", "kubernetes") == 0, kfjob.out
    assert "training-operator" in kfjob.out


@pytest.mark.parametrize("resource", sorted(OBJECTS))
def test_changed_object_is_a_finding_or_an_error(kfjob: Shell, job_file: Path, monkeypatch: pytest.MonkeyPatch, resource: str):
    original = OBJECTS[resource][0]

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(changes(original, WRONG))
    def run(changed: Any) -> None:
        json.dumps(changed)
        check(kfjob, monkeypatch, OBJECTS | {resource: [changed]})

    run()


ANSWERS = {
    "500": lambda: refused(500, "InternalError", "no"),
    "410": lambda: refused(410, "Expired", "too old"),
    "403": lambda: refused(403, "Forbidden", "no"),
    "deep": lambda: reply("[" * 100_000),
    "html": lambda: reply("<html>"),
    "null": lambda: reply("null"),
    "empty": lambda: reply(""),
    "list": lambda: reply([]),
    "items that are text": lambda: reply({"items": "x"}),
    "items of nothing": lambda: reply({"items": [None]}),
    "endless pages": lambda: reply({"metadata": {"continue": "more"}, "items": []}),
}


@pytest.mark.parametrize("kind", sorted(ANSWERS))
def test_odd_answer_to_every_request_is_a_finding_or_an_error(
    kfjob: Shell, job_file: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    serve(lambda _: ANSWERS[kind](), monkeypatch)
    for command in COMMANDS:
        assert kfjob(*command.split(), "--backend", "kubernetes") in (1, 2, 3, 4, 5) or command == "list"
        assert len(kfjob.err) < 5000
