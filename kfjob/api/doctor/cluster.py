"""Checks of a cluster: does it answer, has it the operator, may we do what kfjob does, and what nodes does it have."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from kfjob.api.doctor.findings import Checks, Finding, fail, ok, warn
from kfjob.backends.base import Inventory, Permission
from kfjob.backends.resources import APPS, CORE, CUSTOM_RESOURCE_DEFINITIONS
from kfjob.errors import BackendError, Forbidden, Refused
from kfjob.plan.resolve import INSTANCE_LABEL
from kfjob.spec import api_objects
from kfjob.units import parse_quantity

INSTALL = "kubectl apply --server-side -k manifests/operator"
GRANT = "kubectl apply -n {namespace} -f manifests/rbac/submitter.yaml"
OPERATOR_LABEL = "control-plane=kubeflow-training-operator"
DEVICES = {"nvidia.com/gpu": "GPUs", "aws.amazon.com/neuron": "Neuron devices", "vpc.amazonaws.com/efa": "EFA interfaces"}

_JOBS = {"group": api_objects.PYTORCHJOB_GROUP, "resource": api_objects.PYTORCHJOBS}
NEEDED = (
    *(Permission(verb=verb, **_JOBS) for verb in ("create", "get", "list", "watch", "update", "patch", "delete")),
    *(Permission(verb=verb, resource="pods") for verb in ("get", "list", "watch")),
    Permission(verb="get", resource="pods", subresource="log"),
    Permission(verb="list", resource="services"),
)
"""Without one of these a command of kfjob does not work."""
USEFUL = (
    Permission(verb="create", resource="pods"),
    Permission(verb="create", resource="services"),
    *(Permission(verb=verb, resource="events") for verb in ("get", "list", "watch")),
    *(Permission(verb=verb, subresource="scale", **_JOBS) for verb in ("get", "update", "patch")),
)
"""For a job's own etcd, for what events say, and for scaling."""


def reachable(cluster: Inventory) -> Iterator[Finding]:
    """The API server."""
    began = time.monotonic()
    version = cluster.server_version()
    yield ok("api server", f"{cluster.host}, Kubernetes {version}, answers in {(time.monotonic() - began) * 1000:.0f} ms")


def crd(cluster: Inventory) -> Iterator[Finding]:
    """The kind that jobs are made of."""
    served = cluster.list_resources(api_objects.PYTORCHJOB_API_VERSION)
    if api_objects.PYTORCHJOBS not in served:
        yield fail("crd", f"the cluster has no `{api_objects.PYTORCHJOB}`: the training operator is not installed", INSTALL)
        return
    group = f"{api_objects.PYTORCHJOB} {api_objects.PYTORCHJOB_API_VERSION}"
    try:
        definition = cluster.get_object(
            CUSTOM_RESOURCE_DEFINITIONS,
            "customresourcedefinitions",
            f"{api_objects.PYTORCHJOBS}.{api_objects.PYTORCHJOB_GROUP}",
            namespaced=False,
        )
    except Forbidden:
        yield ok("crd", f"{group} (which version of it cannot be seen with these rights)")
        return
    said, remedy = crd_version(definition or {})
    yield warn("crd", f"{group}, {said}", remedy) if remedy else ok("crd", f"{group}, {said}")


def crd_version(definition: dict[str, Any]) -> tuple[str, str]:
    """The operator's versions that this definition is of, told by fields that came with them; what to do about it."""
    versions = definition.get("spec", {}).get("versions", ())
    schema: dict[str, Any] = next((one["schema"] for one in versions if one.get("served")), {})
    spec = _into(schema, "openAPIV3Schema", "properties", "spec", "properties")
    if not _into(spec, "elasticPolicy"):
        return "of an operator without elastic jobs", INSTALL
    if _into(spec, "runPolicy", "properties", "managedBy"):
        return "of operator 1.9 or newer", ""
    return "of an operator before 1.9", ""


def operator(cluster: Inventory) -> Iterator[Finding]:
    """The deployment that makes pods of jobs."""
    try:
        found = cluster.list_objects(APPS, "deployments", namespaced=False, labels=OPERATOR_LABEL)
    except Forbidden:
        yield warn("operator", "its deployment cannot be seen with these rights", "kubectl get deployments -A | grep training")
        return
    if not found:
        yield fail("operator", "there is no deployment of the training operator", INSTALL)
    for deployment in found:
        namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
        image = deployment["spec"]["template"]["spec"]["containers"][0]["image"].rpartition("/")[2]
        ready, wanted = deployment.get("status", {}).get("readyReplicas", 0), deployment["spec"].get("replicas", 1)
        said = f"{namespace}/{name}, {image}, {ready} of {wanted} ready"
        restart = f"kubectl -n {namespace} describe deployment {name}; kubectl -n {namespace} logs deployment/{name}"
        yield ok("operator", said) if ready else fail("operator", said, restart)


def webhook(cluster: Inventory) -> Iterator[Finding]:
    """Whether it answers: it is asked about a job that it must refuse. Nothing is created."""
    try:
        cluster.dry_run_create(
            api_objects.PYTORCHJOB_API_VERSION, api_objects.PYTORCHJOBS, _without_a_training_container(cluster.namespace)
        )
    except Refused as err:
        if "webhook" in (err.cause or "") and "failed" not in (err.cause or ""):
            yield ok("webhook", "answers")
        else:
            yield ok("webhook", f"the API server itself checks: {(err.cause or '').splitlines()[0]}")
    except Forbidden as err:
        yield warn("webhook", f"cannot be asked: {err.title}", err.hint or "")
    except BackendError as err:  # "failed calling webhook …"
        remedy = "kubectl -n kubeflow get pods,endpoints -l " + OPERATOR_LABEL
        yield fail("webhook", f"does not answer, and so no job can be created: {err.cause}", remedy)
    else:
        yield warn("webhook", "no webhook checks jobs (operator 1.7 has none): a faulty job fails later", INSTALL)


def rights(cluster: Inventory) -> Iterator[Finding]:
    """Every verb that kfjob uses, asked one by one."""
    missing = cluster.find_missing_permissions((*NEEDED, *USEFUL))
    grant = GRANT.format(namespace=cluster.namespace)
    needed = _grouped(right for right in missing if right in NEEDED)
    useful = _grouped(right for right in missing if right in USEFUL)
    if needed:
        yield fail("rights", f"missing in `{cluster.namespace}`: {needed}", f"an administrator: {grant}")
    if useful:
        why = "a job's own etcd, events or scaling will not work"
        yield warn("rights", f"missing in `{cluster.namespace}`: {useful} ({why})", f"an administrator: {grant}")
    if not missing:
        yield ok("rights", f"all {len(NEEDED) + len(USEFUL)} that kfjob uses in `{cluster.namespace}`")


def _grouped(rights: Iterable[Permission]) -> str:
    """`pods: get, list; pods/log: get`."""
    found: dict[str, list[str]] = {}
    for right in rights:
        found.setdefault(right.full_resource, []).append(right.verb)
    return "; ".join(f"{what}: {', '.join(verbs)}" for what, verbs in found.items())


def nodes(cluster: Inventory) -> Iterator[Finding]:
    """What the cluster has for pods to run on."""
    try:
        found = cluster.list_objects(CORE, "nodes", namespaced=False)
    except Forbidden:
        yield warn("nodes", "cannot be seen with these rights: `preflight` will not check whether pods fit", "")
        return
    ready = [node for node in found if is_ready(node)]
    kinds = Counter(_kind(node) for node in ready)
    shown = ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))
    said = f"{len(ready)} of {len(found)} ready: {shown}" if ready else f"none of {len(found)} is ready"
    yield ok("nodes", said) if ready else fail("nodes", said, "kubectl get nodes; kubectl describe node NAME")
    total = {what: int(sum(_count(node, key) for node in ready)) for key, what in DEVICES.items()}
    devices = ", ".join(f"{number} {what}" for what, number in total.items() if number)
    if devices:
        yield ok("devices", devices)
    else:
        yield warn(
            "devices",
            "no node offers GPUs (no device plugin runs, or there are none)",
            "kubectl get pods -A | grep device-plugin",
        )


def queues(cluster: Inventory) -> Iterator[Finding]:
    """Kueue, where it is."""
    if api_objects.KUEUE_LOCAL_QUEUES not in cluster.list_resources(api_objects.KUEUE_API_VERSION):
        yield ok("queues", "no Kueue: jobs start as nodes are free")
        return
    try:
        found = [
            queue["metadata"]["name"]
            for queue in cluster.list_objects(api_objects.KUEUE_API_VERSION, api_objects.KUEUE_LOCAL_QUEUES)
        ]
    except Forbidden:
        yield warn("queues", f"Kueue is there, its queues in `{cluster.namespace}` cannot be seen with these rights")
        return
    none = warn("queues", f"Kueue is there, and `{cluster.namespace}` has no LocalQueue", "kubectl get clusterqueues")
    yield ok("queues", f"Kueue, local queues {', '.join(sorted(found))}") if found else none


CHECKS: Checks[Inventory] = {
    "crd": crd,
    "operator": operator,
    "webhook": webhook,
    "rights": rights,
    "nodes": nodes,
    "queues": queues,
}
"""Once `reachable` is."""


def is_ready(node: dict[str, Any]) -> bool:
    """Whether the kubelet says so."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _count(node: dict[str, Any], resource: str) -> float:
    return parse_quantity(str(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")))


def _kind(node: dict[str, Any]) -> str:
    labels = node["metadata"].get("labels") or {}
    return str(labels.get(INSTANCE_LABEL) or labels.get("kubernetes.io/arch") or "node")


def _into(value: Any, *keys: str) -> Any:
    for key in keys:
        value = (value or {}).get(key)
    return value or {}


def _without_a_training_container(namespace: str) -> dict[str, Any]:
    pod = {"containers": [{"name": "not-pytorch", "image": "none"}]}
    return {
        "apiVersion": api_objects.PYTORCHJOB_API_VERSION,
        "kind": api_objects.PYTORCHJOB,
        "metadata": {"name": "kfjob-doctor", "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": pod}}}},
    }
