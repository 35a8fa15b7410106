"""Positions of a template's fields are those of its own text, also after references of other lengths."""

from __future__ import annotations

import pytest

from kfjob.base.errors import Problem
from kfjob.objects.workload import find_workload
from kfjob.source.manifest import list_objects
from kfjob.source.template.fill import render

TEXT = """# $COMMENT
apiVersion: v1
kind: ConfigMap
metadata: {name: "${A}-${A}", labels: {l: $A}}
data:
  ${A}: é${B}x
  list: [$A, {deep: ${B:-b}}, last]
---
base: &base
  a: 1
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: p}
  spec: {<<: {a: 1}, b: 2}
"""


@pytest.fixture(scope="module")
def objects():
    return list(list_objects(render(TEXT, values={"A": "a-long-value", "B": ""}, file="t.yaml", keep=["B"])))


@pytest.mark.parametrize(
    ("index", "path", "is_key", "position"),
    [
        (0, ("metadata", "name"), False, (4, 18)),
        (0, ("metadata", "labels", "l"), True, (4, 40)),
        (0, ("metadata", "labels", "l"), False, (4, 43)),
        (0, ("data", "a-long-value"), True, (6, 3)),
        (0, ("data", "a-long-value"), False, (6, 9)),
        (0, ("data", "list", 1, "deep"), False, (7, 21)),
        (0, ("data", "list", 2), False, (7, 31)),
        (0, ("data", "missing", "field"), False, (6, 3)),
        (1, ("kind",), False, (15, 9)),
        (1, ("spec", "b"), False, (17, 25)),
        (1, ("spec", "a"), False, (17, 18)),
    ],
)
def test_positions_are_those_of_the_text(objects, index, path, is_key, position):
    problem = objects[index].locate(Problem(title="x"), path, at_key=is_key)
    assert (problem.file, problem.line, problem.column) == ("t.yaml", *position)
    assert problem.path == "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


SERVICE = {
    "kind": "Service",
    "metadata": {"name": "etcd"},
    "spec": {"selector": {"app": "etcd"}, "ports": [{"port": 2379, "targetPort": "client"}]},
}
CONTAINERS = [{"name": "sidecar", "image": "proxy:1"}, {"name": "e", "image": "etcd:v3.4.13", "ports": [{"name": "client"}]}]
POD = {"metadata": {"labels": {"app": "etcd", "more": "x"}}, "spec": {"containers": CONTAINERS}}


@pytest.mark.parametrize(
    ("objects", "host", "image"),
    [
        ([SERVICE, {"kind": "Deployment", "metadata": {"name": "e"}, "spec": {"template": POD}}], "etcd", "etcd:v3.4.13"),
        ([{"kind": "Pod", **POD}, SERVICE], "etcd.team.svc", "etcd:v3.4.13"),
        ([SERVICE, {"kind": "Pod", **POD}], "other", ""),
        ([SERVICE, {"kind": "Pod", **POD, "metadata": {"labels": {"app": "x"}}}], "etcd", ""),
        ([{**SERVICE, "spec": {}}, {"kind": "Pod", **POD}], "etcd", ""),
    ],
)
def test_image_behind_a_host_is_that_of_the_services_pods(objects, host, image):
    found = find_workload(objects, host)
    assert (found.image if found else "") == image


def test_variables_are_those_whose_value_begins_a_text():
    text = """apiVersion: v1
kind: ConfigMap
metadata: {name: "${A}-x", labels: {host: "${HOSTNAME}", kept: "$KEPT", middle: "x$A"}}
data: {given: "${A:-d}", default: "${B:-d}", empty: "${E:-d}", list: [&x "$A", *x]}
"""
    (item,) = list_objects(render(text, values={"A": "1", "KEPT": "2", "E": ""}, keep=["KEPT"]))
    assert item.positions.variables == {
        ("metadata", "name"): "A",
        ("data", "given"): "A",
        ("data", "list", 0): "A",
        ("data", "list", 1): "A",
    }
