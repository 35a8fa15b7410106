"""Find whether a node has room for each pod: its free resources, taints and labels. Pure.

The scheduler knows more rules (affinity, topology spread, volumes); its own message says why a pod waits for these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from kfjob.api.capacity.pod_requirements import format_amount, sum_requests
from kfjob.base.common_types import JsonMapping
from kfjob.base.text import plural
from kfjob.base.units import parse_quantity
from kfjob.kinds.base import PodTemplate

_CORDONED = "node.kubernetes.io/unschedulable"


class Node(Struct):
    """A node, with the resources that are still free."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[JsonMapping]
    allocatable: Mapping[str, float]
    free: dict[str, float] = field(default_factory=dict)

    def add_pod(self, requests: Mapping[str, float]) -> None:
        """Subtract a pod's requests from the free resources."""
        for name, amount in requests.items():
            self.free[name] = self.free.get(name, 0.0) - amount


class Misfit(Struct, frozen=True, kw_only=True):
    """A pod that fits on no node."""

    pod: str
    reason: str
    """One sentence; it counts the nodes with each reason."""
    is_full: bool
    """Whether the pod would fit on an empty node."""


def read_node(manifest: JsonMapping) -> Node:
    """Return the node of an API object."""
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    allocatable = {name: parse_quantity(value) for name, value in (status.get("allocatable") or {}).items()}
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") != "PreferNoSchedule"]
    if spec.get("unschedulable"):
        taints.insert(0, {"key": _CORDONED, "effect": "NoSchedule"})
    labels = manifest["metadata"].get("labels") or {}
    return Node(manifest["metadata"]["name"], labels, taints, allocatable, dict(allocatable))


def add_existing_pods(nodes: Iterable[Node], pods: Iterable[JsonMapping]) -> None:
    """Subtract the requests of existing pods from their nodes."""
    by_name = {node.name: node for node in nodes}
    for pod in pods:
        node = by_name.get((pod.get("spec") or {}).get("nodeName", ""))
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            node.add_pod(sum_requests(pod["spec"]) | {"pods": 1.0})


def find_misfits(nodes: Sequence[Node], templates: Iterable[PodTemplate]) -> list[Misfit]:
    """Add every pod to a node that it fits on. Return, for each template, the first pod that fits on none."""
    return [misfit for template in templates if (misfit := _place(nodes, template))]


def _place(nodes: Sequence[Node], template: PodTemplate) -> Misfit | None:
    requests = sum_requests(template.spec) | {"pods": 1.0}
    for index, pod in enumerate(template.names):
        fitting = (node for node in nodes if not _explain_misfit(node, node.free, template.spec, requests))
        if node := next(fitting, None):
            node.add_pod(requests)
            continue
        reasons = [_explain_misfit(node, node.free, template.spec, requests) for node in nodes]
        is_full = any(not _explain_misfit(node, node.allocatable, template.spec, requests) for node in nodes)
        count = len(template.names)
        return Misfit(pod=pod, reason=_format_reasons(reasons, count - index, count), is_full=is_full)
    return None


def _explain_misfit(node: Node, available: Mapping[str, float], pod: JsonMapping, requests: Mapping[str, float]) -> str:
    """Return why a pod does not fit in what a node has available, with one text for similar nodes; empty if it fits."""
    for taint in node.taints:
        if not any(_tolerates(toleration, taint) for toleration in pod.get("tolerations") or ()):
            value = f"={taint['value']}" if taint.get("value") else ""
            return "cordoned" if taint["key"] == _CORDONED else f"with taint `{taint['key']}{value}:{taint['effect']}`"
    for key, value in (pod.get("nodeSelector") or {}).items():
        if node.labels.get(key) != value:
            return f"without label `{key}={value}`"
    for name, request in requests.items():
        amount = available.get(name, 0.0)
        if request > amount:
            free = " free" if node.allocatable.get(name, 0.0) >= request else ""
            return f"with {format_amount(name, amount)} {name}{free} ({format_amount(name, request)} requested)"
    return ""


def _format_reasons(reasons: Sequence[str], pending: int, total: int) -> str:
    title = f"no node for {pending} of {total} pods" if total > 1 else "no node for the pod"
    if not reasons:
        return f"{title}: the cluster has no ready node"
    text = ", ".join(f"{count} {reason}" for reason, count in Counter(reasons).most_common())
    return f"{title}: of {plural(len(reasons), 'node')}, {text}"


def _tolerates(toleration: JsonMapping, taint: JsonMapping) -> bool:
    """Return whether a toleration is for this taint."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint.get("key")):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")
