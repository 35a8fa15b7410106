"""Checks of a cluster: API server, operator, permissions, nodes and queues."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from kfjob.api.capacity.queues import explain_ignored, ignores_queue
from kfjob.api.doctor.findings import Checks, Finding, fail, ok, warn
from kfjob.backends.base import Inventory, find_api_version
from kfjob.backends.resources import APPS, CORE, CUSTOM_RESOURCE_DEFINITIONS, is_node_ready
from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import BackendError, Forbidden, Refused
from kfjob.base.text import plural
from kfjob.base.units import parse_quantity
from kfjob.kinds.base import JobKind
from kfjob.kinds.registry import get_job
from kfjob.objects import api_objects
from kfjob.objects.permissions import Permission
from kfjob.plan import Context, resolve
from kfjob.plan.resolve import INSTANCE_LABEL
from kfjob.spec.job import JobSpec

GRANT = "kubectl apply -n {namespace} -f manifests/rbac/submitter.yaml"
DEVICES = dict(zip(api_objects.DEVICE_RESOURCES, ("GPU", "Neuron device", "EFA interface"), strict=True))


class Cluster(Struct, frozen=True):
    """What the checks look at."""

    inventory: Inventory
    kind: JobKind  # of the jobs that kfjob submits


def check_api_server(cluster: Inventory, name: str) -> Finding:
    """Return the version and response time of the API server.

    Raises:
        Unreachable: it does not answer.
    """
    start = time.monotonic()
    version = cluster.server_version()
    return ok(name, f"{cluster.host}, Kubernetes {version}, answers in {(time.monotonic() - start) * 1000:.0f} ms")


def check_crd(cluster: Cluster) -> Iterator[Finding]:
    """Check that the cluster serves the kind of job, and the version of its definition."""
    inventory, kind = cluster.inventory, cluster.kind
    if kind.resource not in inventory.list_resources(kind.api_version):
        yield fail("crd", f"the cluster has no `{kind.name}`: {kind.controller} is not installed", kind.install_command)
        return
    name = f"{kind.name} {kind.api_version}"
    try:
        definition = inventory.get_object(
            CUSTOM_RESOURCE_DEFINITIONS, "customresourcedefinitions", f"{kind.resource}.{kind.group}", namespaced=False
        )
    except Forbidden:
        yield ok("crd", f"{name} (not allowed to read its version)")
        return
    version, is_complete = kind.describe_definition(definition or {})
    described = f"{name}, {version}" if version else name
    yield ok("crd", described) if is_complete else warn("crd", described, kind.install_command)


def check_operator(cluster: Cluster) -> Iterator[Finding]:
    """Check the deployments of the controller that creates the pods of jobs."""
    kind = cluster.kind
    if not kind.controller_labels:
        return
    try:
        deployments = cluster.inventory.list_objects(APPS, "deployments", namespaced=False, labels=kind.controller_labels)
    except Forbidden:
        yield warn("operator", "not allowed to list its deployment", "kubectl get deployments -A | grep training")
        return
    if not deployments:
        yield fail("operator", f"no deployment of {kind.controller} found", kind.install_command)
    for deployment in deployments:
        namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
        container: JsonMapping = next(iter(_get(deployment, "spec", "template", "spec", "containers") or ()), {})
        image = (container.get("image") or "unknown image").rpartition("/")[2]
        wanted = _get(deployment, "spec").get("replicas")
        ready, replicas = _get(deployment, "status").get("readyReplicas") or 0, 1 if wanted is None else wanted
        message = f"{namespace}/{name}, {image}, {ready} of {replicas} ready"
        remedy = f"kubectl -n {namespace} describe deployment {name}; kubectl -n {namespace} logs deployment/{name}"
        yield ok("operator", message) if ready else fail("operator", message, remedy)


def check_webhook(cluster: Cluster) -> Iterator[Finding]:
    """Check that the controller's webhook answers: send it, as a dry run, a job that it must refuse."""
    inventory, kind = cluster.inventory, cluster.kind
    invalid = kind.make_invalid(inventory.namespace)
    if invalid is None:
        return
    try:
        inventory.dry_run_create(kind.api_version, kind.resource, invalid)
    except Refused as err:
        if "webhook" in (err.cause or "") and "failed" not in (err.cause or ""):
            yield ok("webhook", "answers")
        else:
            yield ok("webhook", f"the API server itself validates jobs: {(err.cause or '').splitlines()[0]}")
    except Forbidden as err:
        yield warn("webhook", f"not allowed to test it: {err.title}", err.hint or "")
    except BackendError as err:  # "failed calling webhook …"
        remedy = f"kubectl get pods,endpoints -A -l {kind.controller_labels}"
        yield fail("webhook", f"does not answer, so no job can be created: {err.cause}", remedy)
    else:
        message = "no webhook validates jobs (operator 1.7 has none): an invalid job fails later"
        yield warn("webhook", message, kind.install_command)


def check_rights(cluster: Cluster) -> Iterator[Finding]:
    """Check every permission that kfjob uses."""
    kind, namespace = cluster.kind, cluster.inventory.namespace
    missing = cluster.inventory.find_missing_permissions((*kind.permissions, *kind.useful_permissions))
    remedy = f"ask an administrator to run: {GRANT.format(namespace=namespace)}"
    needed = _group_by_resource(permission for permission in missing if permission in kind.permissions)
    useful = _group_by_resource(permission for permission in missing if permission in kind.useful_permissions)
    if needed:
        yield fail("rights", f"missing in `{namespace}`: {needed}", remedy)
    if useful:
        effect = "a job's own etcd, events or scaling will not work"
        yield warn("rights", f"missing in `{namespace}`: {useful} ({effect})", remedy)
    if not missing:
        count = len(kind.permissions) + len(kind.useful_permissions)
        yield ok("rights", f"all {count} rights that kfjob uses in `{namespace}`")


def _group_by_resource(permissions: Iterable[Permission]) -> str:
    """Return permissions as `pods: get, list; pods/log: get`."""
    verbs: dict[str, list[str]] = {}
    for permission in permissions:
        verbs.setdefault(permission.full_resource, []).append(permission.verb)
    return "; ".join(f"{resource}: {', '.join(names)}" for resource, names in verbs.items())


def check_nodes(cluster: Cluster) -> Iterator[Finding]:
    """Check the nodes and their devices."""
    try:
        nodes = cluster.inventory.list_objects(CORE, "nodes", namespaced=False)
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


def check_queues(cluster: Cluster) -> Iterator[Finding]:
    """Check for Kueue and its local queues."""
    kueue = find_api_version(cluster.inventory, api_objects.KUEUE_API_VERSIONS, api_objects.KUEUE_LOCAL_QUEUES)
    if kueue is None:
        yield ok("queues", "Kueue is not installed: jobs start when nodes are free")
        return
    try:
        queues = cluster.inventory.list_objects(kueue, api_objects.KUEUE_LOCAL_QUEUES)
    except Forbidden:
        yield warn("queues", f"Kueue is installed; not allowed to list the queues in `{cluster.inventory.namespace}`")
        return
    names = sorted(queue["metadata"]["name"] for queue in queues)
    missing = f"Kueue is installed, but `{cluster.inventory.namespace}` has no LocalQueue"
    if not names:
        yield warn("queues", missing, "kubectl get clusterqueues")
        return
    yield ok("queues", f"Kueue, local queues {', '.join(names)}")
    if ignores_queue(cluster.inventory, cluster.kind, _make_queued_job(cluster, names[0])):
        yield warn("queues", *explain_ignored(cluster.kind))


def _make_queued_job(cluster: Cluster, queue: str) -> JsonMapping:
    """Return a job in a queue, for a dry run."""
    fields = {"name": "kfjob-doctor", "image": "none", "command": ["true"], "scheduling": {"queue": queue}}
    context = Context(
        backend="kubernetes", launch="none", namespace=cluster.inventory.namespace, name_pods=cluster.kind.name_hosts
    )
    return get_job(cluster.kind.compile(resolve(JobSpec.model_validate(fields), context)))


CHECKS: Checks[Cluster] = {
    "crd": check_crd,
    "operator": check_operator,
    "webhook": check_webhook,
    "rights": check_rights,
    "nodes": check_nodes,
    "queues": check_queues,
}
"""Checks that run if `check_api_server` succeeds."""
CHECKS_OF_KIND: Checks[Cluster] = {name: CHECKS[name] for name in ("crd", "operator", "webhook", "rights")}
"""Those that run for each kind of job that the cluster offers."""


def _allocatable(node: JsonMapping, resource: str) -> float:
    return parse_quantity(str(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")))


def _node_type(node: JsonMapping) -> str:
    labels = node["metadata"].get("labels") or {}
    return str(labels.get(INSTANCE_LABEL) or labels.get("kubernetes.io/arch") or "node")


def _get(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value or {}
