"""Checks of a cluster: API server, operator, permissions, nodes and queues."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from kfjob.api.doctor.findings import Checks, Finding, fail, ok, warn
from kfjob.backends.base import Inventory, find_api_version
from kfjob.backends.resources import APPS, CORE, CUSTOM_RESOURCE_DEFINITIONS, is_node_ready
from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import BackendError, Forbidden, Refused
from kfjob.base.text import plural
from kfjob.base.units import parse_quantity
from kfjob.objects import api_objects
from kfjob.objects.permissions import Permission
from kfjob.plan.resolve import INSTANCE_LABEL

INSTALL = "kubectl apply --server-side -k manifests/operator"
GRANT = "kubectl apply -n {namespace} -f manifests/rbac/submitter.yaml"
OPERATOR_LABEL = "control-plane=kubeflow-training-operator"
DEVICES = dict(zip(api_objects.DEVICE_RESOURCES, ("GPU", "Neuron device", "EFA interface"), strict=True))

_JOBS = {"group": api_objects.PYTORCHJOB_GROUP, "resource": api_objects.PYTORCHJOBS}
NEEDED = (
    *(Permission(verb=verb, **_JOBS) for verb in ("create", "get", "list", "watch", "update", "patch", "delete")),
    *(Permission(verb=verb, resource="pods") for verb in ("get", "list", "watch")),
    Permission(verb="get", resource="pods", subresource="log"),
    Permission(verb="list", resource="services"),
)
"""Without one of these, a command of kfjob does not work."""
USEFUL = (
    Permission(verb="create", resource="pods"),
    Permission(verb="create", resource="services"),
    *(Permission(verb=verb, resource="events") for verb in ("get", "list", "watch")),
    *(Permission(verb=verb, subresource="scale", **_JOBS) for verb in ("get", "update", "patch")),
)
"""For a job's own etcd, Kubernetes events, and scaling."""


def check_api_server(cluster: Inventory, name: str) -> Finding:
    """Return the version and response time of the API server.

    Raises:
        Unreachable: it does not answer.
    """
    start = time.monotonic()
    version = cluster.server_version()
    return ok(name, f"{cluster.host}, Kubernetes {version}, answers in {(time.monotonic() - start) * 1000:.0f} ms")


def check_crd(cluster: Inventory) -> Iterator[Finding]:
    """Check that the cluster serves PyTorchJob, and the version of its definition."""
    resources = cluster.list_resources(api_objects.PYTORCHJOB_API_VERSION)
    if api_objects.PYTORCHJOBS not in resources:
        yield fail("crd", f"the cluster has no `{api_objects.PYTORCHJOB}`: the training operator is not installed", INSTALL)
        return
    kind = f"{api_objects.PYTORCHJOB} {api_objects.PYTORCHJOB_API_VERSION}"
    try:
        definition = cluster.get_object(
            CUSTOM_RESOURCE_DEFINITIONS,
            "customresourcedefinitions",
            f"{api_objects.PYTORCHJOBS}.{api_objects.PYTORCHJOB_GROUP}",
            namespaced=False,
        )
    except Forbidden:
        yield ok("crd", f"{kind} (not allowed to read its version)")
        return
    version, remedy = describe_crd_version(definition or {})
    yield warn("crd", f"{kind}, {version}", remedy) if remedy else ok("crd", f"{kind}, {version}")


def describe_crd_version(definition: JsonObject) -> tuple[str, str]:
    """Return which operator versions have such a definition, judged by its fields, and a remedy or an empty text."""
    versions = _get(definition, "spec", "versions") or ()
    schema: JsonObject = next((version.get("schema") or {} for version in versions if version.get("served")), {})
    spec = _get(schema, "openAPIV3Schema", "properties", "spec", "properties")
    if not _get(spec, "elasticPolicy"):
        return "from an operator without elastic jobs", INSTALL
    if _get(spec, "runPolicy", "properties", "managedBy"):
        return "from operator 1.9 or newer", ""
    return "from an operator before 1.9", ""


def check_operator(cluster: Inventory) -> Iterator[Finding]:
    """Check the deployments of the training operator, which creates the pods of jobs."""
    try:
        deployments = cluster.list_objects(APPS, "deployments", namespaced=False, labels=OPERATOR_LABEL)
    except Forbidden:
        yield warn("operator", "not allowed to list its deployment", "kubectl get deployments -A | grep training")
        return
    if not deployments:
        yield fail("operator", "no deployment of the training operator found", INSTALL)
    for deployment in deployments:
        namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
        container: JsonMapping = next(iter(_get(deployment, "spec", "template", "spec", "containers") or ()), {})
        image = (container.get("image") or "unknown image").rpartition("/")[2]
        wanted = _get(deployment, "spec").get("replicas")
        ready, replicas = _get(deployment, "status").get("readyReplicas") or 0, 1 if wanted is None else wanted
        message = f"{namespace}/{name}, {image}, {ready} of {replicas} ready"
        remedy = f"kubectl -n {namespace} describe deployment {name}; kubectl -n {namespace} logs deployment/{name}"
        yield ok("operator", message) if ready else fail("operator", message, remedy)


def check_webhook(cluster: Inventory) -> Iterator[Finding]:
    """Check that the operator's webhook answers: send it, as a dry run, a job that it must refuse."""
    try:
        cluster.dry_run_create(api_objects.PYTORCHJOB_API_VERSION, api_objects.PYTORCHJOBS, _invalid_job(cluster.namespace))
    except Refused as err:
        if "webhook" in (err.cause or "") and "failed" not in (err.cause or ""):
            yield ok("webhook", "answers")
        else:
            yield ok("webhook", f"the API server itself validates jobs: {(err.cause or '').splitlines()[0]}")
    except Forbidden as err:
        yield warn("webhook", f"not allowed to test it: {err.title}", err.hint or "")
    except BackendError as err:  # "failed calling webhook …"
        remedy = "kubectl -n kubeflow get pods,endpoints -l " + OPERATOR_LABEL
        yield fail("webhook", f"does not answer, so no job can be created: {err.cause}", remedy)
    else:
        yield warn("webhook", "no webhook validates jobs (operator 1.7 has none): an invalid job fails later", INSTALL)


def check_rights(cluster: Inventory) -> Iterator[Finding]:
    """Check every permission that kfjob uses."""
    missing = cluster.find_missing_permissions((*NEEDED, *USEFUL))
    remedy = f"ask an administrator to run: {GRANT.format(namespace=cluster.namespace)}"
    needed = _group_by_resource(permission for permission in missing if permission in NEEDED)
    useful = _group_by_resource(permission for permission in missing if permission in USEFUL)
    if needed:
        yield fail("rights", f"missing in `{cluster.namespace}`: {needed}", remedy)
    if useful:
        effect = "a job's own etcd, events or scaling will not work"
        yield warn("rights", f"missing in `{cluster.namespace}`: {useful} ({effect})", remedy)
    if not missing:
        yield ok("rights", f"all {len(NEEDED) + len(USEFUL)} rights that kfjob uses in `{cluster.namespace}`")


def _group_by_resource(permissions: Iterable[Permission]) -> str:
    """Return permissions as `pods: get, list; pods/log: get`."""
    verbs: dict[str, list[str]] = {}
    for permission in permissions:
        verbs.setdefault(permission.full_resource, []).append(permission.verb)
    return "; ".join(f"{resource}: {', '.join(names)}" for resource, names in verbs.items())


def check_nodes(cluster: Inventory) -> Iterator[Finding]:
    """Check the nodes and their devices."""
    try:
        nodes = cluster.list_objects(CORE, "nodes", namespaced=False)
    except Forbidden:
        yield warn("nodes", "not allowed to list nodes: `preflight` cannot check whether pods fit", "")
        return
    ready = [node for node in nodes if is_node_ready(node)]
    types = Counter(_node_type(node) for node in ready)
    summary = ", ".join(f"{count} x {node_type}" for node_type, count in sorted(types.items()))
    message = f"{len(ready)} of {len(nodes)} ready{f': {summary}' if ready else ''}" if nodes else "the cluster has no nodes"
    yield ok("nodes", message) if ready else fail("nodes", message, "kubectl get nodes; kubectl describe node NAME")
    totals = {noun: int(sum(_allocatable(node, resource) for node in ready)) for resource, noun in DEVICES.items()}
    devices = ", ".join(plural(total, noun) for noun, total in totals.items() if total)
    if devices:
        yield ok("devices", devices)
    else:
        yield warn(
            "devices",
            "no node offers GPUs: the cluster has none, or no device plugin runs",
            "kubectl get pods -A | grep device-plugin",
        )


def check_queues(cluster: Inventory) -> Iterator[Finding]:
    """Check for Kueue and its local queues."""
    kueue = find_api_version(cluster, api_objects.KUEUE_API_VERSIONS, api_objects.KUEUE_LOCAL_QUEUES)
    if kueue is None:
        yield ok("queues", "Kueue is not installed: jobs start when nodes are free")
        return
    try:
        queues = cluster.list_objects(kueue, api_objects.KUEUE_LOCAL_QUEUES)
    except Forbidden:
        yield warn("queues", f"Kueue is installed; not allowed to list the queues in `{cluster.namespace}`")
        return
    names = sorted(queue["metadata"]["name"] for queue in queues)
    missing = f"Kueue is installed, but `{cluster.namespace}` has no LocalQueue"
    yield (
        ok("queues", f"Kueue, local queues {', '.join(names)}")
        if names
        else warn("queues", missing, "kubectl get clusterqueues")
    )


CHECKS: Checks[Inventory] = {
    "crd": check_crd,
    "operator": check_operator,
    "webhook": check_webhook,
    "rights": check_rights,
    "nodes": check_nodes,
    "queues": check_queues,
}
"""Checks that run if `check_api_server` succeeds."""


def _allocatable(node: JsonMapping, resource: str) -> float:
    return parse_quantity(str(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")))


def _node_type(node: JsonMapping) -> str:
    labels = node["metadata"].get("labels") or {}
    return str(labels.get(INSTANCE_LABEL) or labels.get("kubernetes.io/arch") or "node")


def _get(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value or {}


def _invalid_job(namespace: str) -> JsonObject:
    """Return a PyTorchJob without a training container."""
    pod = {"containers": [{"name": "not-pytorch", "image": "none"}]}
    return {
        "apiVersion": api_objects.PYTORCHJOB_API_VERSION,
        "kind": api_objects.PYTORCHJOB,
        "metadata": {"name": "kfjob-doctor", "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": pod}}}},
    }
