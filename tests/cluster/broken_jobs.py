"""Jobs that cannot run, keyed by the diagnosis rule that must find them, and the objects that they need in their namespace."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kfjob.base.errors import KfjobError
from kfjob.cluster import requests
from kfjob.kinds.pytorchjob.manifest import compile_manifests
from tests.cluster.facts import Space, until
from tests.pytorchjobs import KIND, pod_changed

Job = dict[str, Any]

IDLE = ["python3", "-c", "import time; time.sleep(600)"]
HUNGRY = ["python3", "-c", "held = bytearray(512 << 20); held[::4096] = bytes(len(held[::4096])); print('not killed')"]
GREEDY = ["python3", "-c", "import time; open('/tmp/core', 'wb').write(bytes(64 << 20)); time.sleep(600)"]
BROKEN = ["python3", "-c", "import flash_attn"]


@dataclass(frozen=True)
class Broken:
    """A job with one fault."""

    command: list[str] = field(default_factory=lambda: IDLE)
    spec: dict[str, Any] = field(default_factory=dict)
    change: Callable[[Job], Job] = dict
    of_pod: bool = True  # its first pod shows the fault


def _template(job: Job) -> Job:
    template: Job = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    return template


def _env_from(kind: str) -> Callable[[Job], Job]:
    def change(job: Job) -> Job:
        reference = {kind: {"name": "nobody-has-this", "key": "token"}}
        _template(job)["containers"][0].setdefault("env", []).append({"name": "HF_TOKEN", "valueFrom": reference})
        return job

    return change


def _with_volume(source: Job) -> Callable[[Job], Job]:
    def change(job: Job) -> Job:
        _template(job).setdefault("volumes", []).append({"name": "more", **source})
        _template(job)["containers"][0].setdefault("volumeMounts", []).append({"name": "more", "mountPath": "/more"})
        return job

    return change


def _in_pod(**values: Any) -> Callable[[Job], Job]:
    def change(job: Job) -> Job:
        _template(job).update(values)
        return job

    return change


def _container(**values: Any) -> Callable[[Job], Job]:
    def change(job: Job) -> Job:
        _template(job)["containers"][0].update(values)
        return job

    return change


def _labelled(job: Job) -> Job:
    """Label the pods, so that the webhook or the policy for this job sees them."""
    metadata = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"].setdefault("metadata", {})
    metadata.setdefault("labels", {})["kfjob.test/job"] = job["metadata"]["name"]
    return job


def _without_host_paths(job: Job) -> Job:
    pod = _template(job)
    host_paths = {volume["name"] for volume in pod.get("volumes", ()) if "hostPath" in volume}
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] not in host_paths]
    container = pod["containers"][0]
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] not in host_paths]
    return job


def _unmanaged(job: Job) -> Job:
    """Let the operator ignore the job (v1.9.3 pytorchjob_controller.go)."""
    job["spec"].setdefault("runPolicy", {})["managedBy"] = "kueue.x-k8s.io/multikueue"
    return job


def _claim(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "ckpt", "pvc": name, "mount_path": "/ckpt"}]}


RESTARTED = {"restarts": {"policy": "OnFailure"}}

OPEN: dict[str, Broken] = {
    # images; STUB is replaced by the address of `stub_registry`
    "image-not-found": Broken(spec={"image": "STUB/nobody/has-this:1"}),
    "registry-unreachable": Broken(spec={"image": "nowhere.invalid/a:1"}),
    "pull-denied": Broken(spec={"image": "STUB/private/a:1"}),
    "image-wrong-architecture": Broken(spec={"image": "STUB/arm/a:1"}),
    "image-name-invalid": Broken(change=_container(image="Not A Name")),
    # scheduling
    "no-node-so-large": Broken(spec={"resources": {"cpu": "4096"}}),
    "taint": Broken(spec={"scheduling": {"node_selector": {"kfjob.test/node": "SPACE"}}}),
    "unschedulable": Broken(change=_in_pod(schedulingGates=[{"name": "kfjob.test/closed"}])),
    # what pods take from their namespace
    "secret-missing": Broken(change=_env_from("secretKeyRef")),
    "config-map-missing": Broken(change=_env_from("configMapKeyRef")),
    "mount-failed": Broken(change=_with_volume({"hostPath": {"path": "/nobody-has-this", "type": "Directory"}})),
    "claim-missing": Broken(spec=_claim("nobody-has-this")),
    "claim-not-provided": Broken(spec=_claim("no-volume"), of_pod=False),
    "storage-class-missing": Broken(spec=_claim("no-class"), of_pod=False),
    "service-account-missing": Broken(spec={"service_account": "nobody-has-this"}, of_pod=False),
    # admission
    "webhook-down": Broken(change=_labelled, of_pod=False),
    "webhook-denied": Broken(change=_labelled, of_pod=False),
    "operator-missing": Broken(change=_unmanaged, of_pod=False),
    "suspended": Broken(spec={"run": {"suspend": True}}, of_pod=False),
    # what pods do to themselves
    "out-of-memory": Broken(HUNGRY, {"resources": {"memory": "64Mi"}, **RESTARTED}),
    "ephemeral-storage-full": Broken(GREEDY, change=_container(resources={"limits": {"ephemeral-storage": "8Mi"}})),
    "module-not-found": Broken(BROKEN, {"watchdog": {"crashes": 1}, **RESTARTED}),
    "container-start": Broken(["torchrnu", "train.py"]),
    "command-not-found": Broken(["sh", "-c", "echo step 1/10 loss 2.5; torchrnu"], {"env": {"HF_TOKEN": "kf-hunter2-9431"}}),
    "pod-crashed": Broken(["python3", "-c", "import os; os.abort()"]),
}
"""In a namespace without limits."""

BOUNDED: dict[str, Broken] = {
    "quota-exceeded": Broken(spec={"nodes": 2}, change=_without_host_paths, of_pod=False),
    "limit-range": Broken(spec={"resources": {"memory": "2Gi"}}, change=_without_host_paths, of_pod=False),
    "pod-security": Broken(of_pod=False),  # of the host path that brings torch
}
"""In a namespace with a quota of one pod, a limit of 1 GiB and the pod security level `baseline`."""


@contextmanager
def submitted(space: Space, jobs: dict[str, Broken], stub: str) -> Iterator[dict[str, str]]:
    """Submit all jobs together, so that they wait in parallel; yield their names by rule."""
    names = {}
    for rule, broken in jobs.items():
        spec = {key: _substitute(value, {"STUB": stub, "SPACE": space.name}) for key, value in broken.spec.items()}
        plan = space.plan(f"job-{rule}", broken.command, **spec)
        space.client.call(requests.create(broken.change(compile_manifests(plan)[0])))
        names[rule] = plan.name
    try:
        yield names
    finally:
        for name in names.values():
            with suppress(KfjobError):
                job = space.client.call(requests.get_job(KIND, space.name, name))
                space.client.call(requests.delete_job(KIND, space.name, name, job["metadata"]["uid"]))


def _substitute(value: Any, values: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _substitute(item, values) for key, item in value.items()}
    if isinstance(value, str):
        for placeholder, text in values.items():
            value = value.replace(placeholder, text)
    return value


@contextmanager
def stub_registry(space: Space) -> Iterator[str]:
    """Yield the address, for the node's containerd, of a registry that refuses every request."""
    program = (Path(__file__).parent / "stub_registry.py").read_text()
    port = 20000 + zlib.crc32(space.name.encode()) % 10000
    probe = {"httpGet": {"host": "127.0.0.1", "port": port, "path": "/v2/"}, "periodSeconds": 1}
    container = {"name": "registry", "image": space.facts.image, "command": ["python3", "-c", program, str(port)]}
    pod = {"hostNetwork": True, "containers": [{**container, "readinessProbe": probe}], "terminationGracePeriodSeconds": 0}
    space.send("POST", f"/api/v1/namespaces/{space.name}/pods", {"metadata": {"name": "registry"}, "spec": pod})
    until(lambda: pod_changed(space.client.call(requests.get("pods", space.name, "registry")), now=0).ready)
    yield f"127.0.0.1:{port}"  # the pod is deleted with the namespace


@contextmanager
def surroundings(space: Space) -> Iterator[None]:
    """Create claims without a volume, a tainted node, a webhook without a server, and a policy that denies."""
    for name, storage_class in (("no-volume", ""), ("no-class", "nobody-has-this")):
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        body = {"metadata": {"name": name}, "spec": {**claim, "storageClassName": storage_class}}
        space.send("POST", f"/api/v1/namespaces/{space.name}/persistentvolumeclaims", body)
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space.name}}}
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    webhook = {
        "name": "pods.kfjob.test",
        "clientConfig": {"service": {"name": "nobody", "namespace": space.name}},
        "rules": [rule],
        "objectSelector": {"matchLabels": {"kfjob.test/job": "job-webhook-down"}},
        **selector,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
    }
    policy = {
        "matchConstraints": {
            "resourceRules": [rule],
            "objectSelector": {"matchLabels": {"kfjob.test/job": "job-webhook-denied"}},
            **selector,
        },
        "validations": [{"expression": "false", "message": "no pods today"}],
    }
    node = {"taints": [{"key": "kfjob.test/closed", "value": "yes", "effect": "NoSchedule"}]}
    objects: list[tuple[str, dict[str, Any]]] = [
        ("/api/v1/nodes", {"metadata": {"name": space.name, "labels": {"kfjob.test/node": space.name}}, "spec": node}),
        ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {"webhooks": [webhook]}),
        ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", {"spec": policy}),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
            {"spec": {"policyName": space.name, "validationActions": ["Deny"]}},
        ),
    ]
    try:
        for path, body in objects:
            space.send("POST", path, {"metadata": {"name": space.name}, **body})
        yield
    finally:
        for path, _ in objects:
            with suppress(KfjobError):
                space.send("DELETE", f"{path}/{space.name}")


def bound(space: Space) -> None:
    """Give the namespace a quota, a limit range and a pod security level."""
    path = f"/api/v1/namespaces/{space.name}"
    limits = [{"type": "Container", "max": {"memory": "1Gi"}}]
    space.send("POST", f"{path}/resourcequotas", {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}})
    space.send("POST", f"{path}/limitranges", {"metadata": {"name": "small"}, "spec": {"limits": limits}})
    space.send("PATCH", path, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
