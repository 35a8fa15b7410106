"""Find which nodes can hold which pods, by the scheduler's rules on resources, selectors, affinity and taints. Pure.

Mirrors Kubernetes v1.34, pkg/scheduler/framework/plugins: noderesources, nodeaffinity, tainttoleration, nodeunschedulable.
Affinity between pods and topology spread are not evaluated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kfjob.api.preflight.pod_requirements import format_amount, sum_requests
from kfjob.common_types import JsonMapping
from kfjob.compile.pod_templates import PodTemplate
from kfjob.text import plural
from kfjob.units import parse_quantity

CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass
class Node:
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


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """A pod that fits on no node, with the reasons counted as the scheduler does."""

    pod: str
    reason: str  # one sentence
    is_full: bool  # it would fit on an empty node


def read_node(manifest: JsonMapping) -> Node:
    """Return the node of an API object."""
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    allocatable = {name: parse_quantity(value) for name, value in (status.get("allocatable") or {}).items()}
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") != "PreferNoSchedule"]
    if spec.get("unschedulable") and not any(taint.get("key") == CORDONED["key"] for taint in taints):
        taints.append(CORDONED)
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
    """Add every pod to the first node that it fits on. Return, for each template, the first pod that fits on none."""
    misfits = []
    for template in templates:
        requests = sum_requests(template.spec) | {"pods": 1.0}
        for index, pod in enumerate(template.names):
            reasons = {node.name: explain_misfit(node, template.spec, requests) for node in nodes}
            if node := next((node for node in nodes if not reasons[node.name]), None):
                node.add_pod(requests)
                continue
            is_full = any(not explain_misfit(node, template.spec, requests, empty=True) for node in nodes)
            reason = _format_reasons(reasons, len(template.names) - index, len(template.names))
            misfits.append(Misfit(pod=pod, reason=reason, is_full=is_full))
            break
    return misfits


def explain_misfit(node: Node, pod: JsonMapping, requests: Mapping[str, float], *, empty: bool = False) -> str:
    """Return why a pod does not fit on a node, with the same text for similar nodes; empty if it fits.

    With `empty`, ignore the pods that the node already has.
    """
    for taint in node.taints:
        if not any(_tolerates(toleration, taint) for toleration in pod.get("tolerations") or ()):
            value = f"={taint['value']}" if taint.get("value") else ""
            return "cordoned" if taint["key"] == CORDONED["key"] else f"with taint `{taint['key']}{value}:{taint['effect']}`"
    for key, value in (pod.get("nodeSelector") or {}).items():
        if node.labels.get(key) != value:
            return f"without label `{key}={value}`"
    if not _matches_affinity(node, pod):
        return "outside the node affinity"
    available = node.allocatable if empty else node.free
    for name, request in requests.items():
        amount = available.get(name, 0.0)
        if request > amount:
            free = "" if empty or node.allocatable.get(name, 0.0) < request else " free"
            return f"with {format_amount(name, amount)} {name}{free} ({format_amount(name, request)} requested)"
    return ""


def _format_reasons(reasons: Mapping[str, str], pending: int, total: int) -> str:
    title = f"no node for {pending} of {total} pods" if total > 1 else "no node for the pod"
    if not reasons:
        return f"{title}: the cluster has no ready node"
    counts = Counter(reasons.values())
    text = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
    return f"{title}: of {plural(len(reasons), 'node')}, {text}"


def _tolerates(toleration: JsonMapping, taint: JsonMapping) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint.get("key")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _matches_affinity(node: Node, pod: JsonMapping) -> bool:
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if not affinity:
        return True
    return any(
        all(_matches(node.labels, expression) for expression in term.get("matchExpressions") or ())
        and all(_matches({"metadata.name": node.name}, expression) for expression in term.get("matchFields") or ())
        for term in affinity.get("nodeSelectorTerms") or ()
    )


def _matches(labels: Mapping[str, str], expression: JsonMapping) -> bool:
    label, values = labels.get(expression["key"]), list(expression.get("values") or ())
    match expression["operator"]:
        case "In":
            return label in values
        case "NotIn":
            return label not in values
        case "Exists":
            return label is not None
        case "DoesNotExist":
            return label is None
        case "Gt":
            return label is not None and int(label) > int(values[0])
        case _:  # Lt
            return label is not None and int(label) < int(values[0])
