"""Values that the API server, the operator or torchrun refuses are problems at their field, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kfjob.kinds.pytorchjob.admission import find_job_problems
from kfjob.objects.api_check import find_object_faults
from kfjob.source.manifest import list_objects
from kfjob.source.template import fill as template
from kfjob.validation.field_paths import join_path, parse_path

CONTAINER: Any = {"name": "pytorch", "image": "a:1"}
POD = "spec.pytorchReplicaSpecs.Worker.template.spec"
MAIN = f"{POD}.containers.0"
SELECTOR = [{"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}]
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": SELECTOR}}}
SMALL = {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}


def make_job(path: str, value: Any) -> Any:
    """Return a job with a value at a path; a list is made where the next step is its first item."""
    pod = {"metadata": {}, "spec": {"containers": [dict(CONTAINER)], "volumes": [{"name": "data", "emptyDir": {}}]}}
    job: Any = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"}}
    job["spec"] = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": pod}}}
    *steps, last = parse_path(path)
    part = job
    for step, following in zip(steps, (*steps[1:], last), strict=True):
        part = part.setdefault(step, [{}] if following == 0 else {}) if isinstance(part, dict) else part[step]
    part[last] = value
    return job


REFUSED_IN_JOBS: Any = [
    ("spec.pytorchReplicaSpecs.Worker.restartPolicy", "never", "`never` is not a value of `restartPolicy`", ""),
    ("spec.nprocPerNode", "foo", "must be a number, `auto`, `gpu` or `cpu`, not `foo`", ""),
    ("spec.runPolicy.cleanPodPolicy", "all", "`all` is not a value of `cleanPodPolicy`", ""),
    ("spec.elasticPolicy.rdzvBackend", "foo", "`foo` is not a value of `rdzvBackend`", ""),
    ("metadata.namespace", "A_b", "`A_b` cannot be the name of a namespace", ""),
    ("metadata.labels.a b", "c", "`a b` is not a valid key", ""),
    (f"{POD}.nodeSelector.pool", "x y", "`x y` is not a valid label value", ""),
    (f"{POD}.dnsPolicy", "clusterFirst", "is not a value of `dnsPolicy`", ""),
    (f"{POD}.affinity", AFFINITY, "`in` is not a value of `operator`", None),
    (f"{POD}.tolerations", [{"key": "a", "operator": "exists"}], "is not a value of `operator`", ".0.operator"),
    (f"{POD}.tolerations", [{"key": "a", "operator": "Exists", "value": "b"}], "has no `value`", ".0.value"),
    (f"{POD}.volumes", [{"name": "V_1", "emptyDir": {}}], "`V_1` is not a DNS-1123 label", ".0.name"),
    (f"{POD}.volumes", [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/a"}}], "only one of", None),
    (f"{POD}.volumes", [{"name": "v", "hostPath": {"path": "/a", "type": "dir"}}], "is not a value of `type`", None),
    (f"{POD}.volumes", [{"name": "v", "emptyDir": {"medium": "memory"}}], "`memory` is not a medium", None),
    (f"{POD}.volumes", [{"name": "v", "configMap": {"name": "a", "defaultMode": 9999}}], "must be 0 to 511", None),
    (f"{POD}.volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "A_b"}}], "`A_b` is not the name", None),
    (f"{POD}.initContainers", [CONTAINER], "two containers have the name `pytorch`", None),
    (f"{POD}.containers", [CONTAINER, CONTAINER | {"name": "Side_Car"}], "`Side_Car` is not a DNS-1123 label", ".1.name"),
    (f"{MAIN}.imagePullPolicy", "always", "`always` is not a value of `imagePullPolicy`", ""),
    (f"{MAIN}.ports", [{"containerPort": 70000}], "`containerPort` must be 1 to 65535, not 70000", ".0.containerPort"),
    (f"{MAIN}.ports", [{"containerPort": 80, "hostPort": 99999}], "`hostPort` must be 0 to 65535", ".0.hostPort"),
    (f"{MAIN}.ports", [{"containerPort": 80, "name": "tensorboard-port"}], "is not a port name", ".0.name"),
    (f"{MAIN}.ports", [{"containerPort": 80, "protocol": "tcp"}], "`tcp` is not a value of `protocol`", ".0.protocol"),
    (f"{MAIN}.env", [{"name": "A=B", "value": "c"}], "`A=B` is not a name of a variable", ".0.name"),
    (f"{MAIN}.env", [{"name": "A", "valueFrom": {}}], "is needed", ".0.valueFrom"),
    (
        f"{MAIN}.env",
        [{"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "the variable `A` has a `value` and a `valueFrom`",
        ".0.valueFrom",
    ),
    (f"{MAIN}.volumeMounts", [{"name": "other", "mountPath": "/d"}], "the pod has no volume `other`", ".0.name"),
    (f"{MAIN}.volumeMounts", [{"name": "data", "mountPath": "/d", "subPath": "../x"}], "`../x` is not a path", None),
    (f"{MAIN}.livenessProbe", {"periodSeconds": 10}, "one of `exec`, `httpGet`, `tcpSocket`, `grpc` is needed", ""),
    (f"{MAIN}.resources.limits.cpu", "-1", "the container `pytorch` has a negative cpu: -1", ""),
    (f"{MAIN}.resources.limits", {"nvidia.com/gpu": "500m"}, "has a part of a device", ".nvidia.com/gpu"),
    (f"{MAIN}.resources.requests", {"nvidia.com/gpu": 1}, "requests nvidia.com/gpu without a limit", ".nvidia.com/gpu"),
    (f"{MAIN}.resources", SMALL, "requests less nvidia.com/gpu than its limit of 2", ".requests.nvidia.com/gpu"),
]


@pytest.mark.parametrize(("path", "value", "title", "place"), REFUSED_IN_JOBS)
def test_each_refused_value_of_a_job_is_a_problem(path, value, title, place):
    (problem,) = find_job_problems(make_job(path, value))
    assert title in problem.title
    if place is not None:
        assert join_path(problem.path) == path + place


def make_object(kind: str, version: str = "v1", *, name: str = "a", **parts: Any) -> Any:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **parts}


CLAIM = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Ti"}}}
PORT = {"port": 80}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}


REFUSED_OBJECTS: Any = [
    (make_object("Service", name="Bad_Name", spec={"ports": [PORT]}), "`Bad_Name` cannot be the name of a Service"),
    (make_object("Service", spec={"ports": [{"port": "http"}]}), "`spec.ports.0.port` must be a whole number"),
    (make_object("Service", spec={}), "a Service needs `ports`"),
    (make_object("ConfigMap", data={"NODES": 2}), "`data.NODES` must be text"),
    (make_object("ConfigMap", data={"a/b": "2"}), "`a/b` is not a valid key of a ConfigMap"),
    (make_object("Secret", data={"token": "not base64!"}), "`data.token` must be text in base64"),
    (make_object("PersistentVolumeClaim", spec=CLAIM | {"accessModes": ["RWX"]}), "`RWX` is not a value of `accessModes`"),
    (
        make_object("PersistentVolumeClaim", spec=CLAIM | {"resources": {"requests": {"storage": "big"}}}),
        "must be a quantity, such as `2` or `16Gi`, not `big`",
    ),
    (make_object("Deployment", "apps/v1", spec={"template": TEMPLATE}), "`selector` is needed"),
    (
        make_object("Deployment", "apps/v1", spec={"selector": {"matchLabels": {"app": "b"}}, "template": TEMPLATE}),
        "`selector` has the label `app: b`, which the pod template does not have",
    ),
    (make_object("Job", "batch/v1", spec={"template": TEMPLATE}), "the pods of a Job need `restartPolicy: OnFailure`"),
]


@pytest.mark.parametrize(("value", "title"), REFUSED_OBJECTS)
def test_each_refused_value_of_another_object_is_a_fault(value, title):
    (fault,) = find_object_faults(value)
    assert title in fault.title


ACCEPTED_OBJECTS: Any = [
    make_object("Service", spec={"clusterIP": "None"}),
    make_object("ConfigMap", data={"a.sh": ""}, binaryData={"b": "AA=="}),
    make_object("ConfigMap", immutable=None, unknown={"field": [1]}),
    make_object("Secret", stringData={"token": "x"}),
    make_object("Role", "rbac.authorization.k8s.io/v1", name="system:A_b"),
    make_object("Widget", "example.com/v1", name="Any_Name", spec=3),
    make_object("PersistentVolumeClaim", spec=CLAIM),
    make_object("Pod", spec={"volumes": [{"name": "a"}], "containers": [CONTAINER]}),
    make_object(
        "StatefulSet",
        "apps/v1",
        spec={
            "selector": {"matchLabels": {"app": "a"}},
            "serviceName": "a",
            "template": TEMPLATE
            | {"spec": {"containers": [CONTAINER | {"volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": CLAIM}],
        },
    ),
]


@pytest.mark.parametrize("value", ACCEPTED_OBJECTS)
def test_what_the_api_server_accepts_has_no_fault(value):
    assert find_object_faults(value) == []


RUNS_IN_JOBS: Any = [
    (f"{POD}.volumes", [{"name": "data"}]),  # an emptyDir
    (f"{POD}.tolerations", [{"operator": "Exists"}]),
    (f"{POD}.restartPolicy", "never"),  # the operator replaces it
    (f"{MAIN}.env", [{"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
    (f"{MAIN}.env", [{"name": "my.name-1", "value": "b"}]),
    (f"{MAIN}.resources.limits", {"nvidia.com/gpu": "2k", "cpu": "0.5", "memory": "1e3", "hugepages-2Mi": "4Mi"}),
    (f"{MAIN}.livenessProbe", {"newHandler": {}}),
    ("spec.nprocPerNode", "xpu"),
]


@pytest.mark.parametrize(("path", "value"), RUNS_IN_JOBS)
def test_what_runs_has_no_problem(path, value):
    problems = [problem for problem in find_job_problems(make_job(path, value)) if not problem.is_unknown_field]
    assert problems == []


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[2] / "golden" / "manifests").iterdir()), ids=lambda file: file.stem
)
def test_golden_manifests_have_no_fault(file):
    for item in list_objects(template.parse(file.read_text())):
        assert item.kind == "PyTorchJob" or find_object_faults(item.value) == []
        assert item.kind != "PyTorchJob" or find_job_problems(item.value) == []
