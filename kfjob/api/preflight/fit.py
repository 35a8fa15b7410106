"""Which nodes can hold which pods: the scheduler's own rules on resources, selectors, affinity and taints. Pure.

Mirrors Kubernetes v1.34, pkg/scheduler/framework/plugins: noderesources, nodeaffinity, tainttoleration, nodeunschedulable.
Affinity between pods and topology spread are not looked target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfjob.api.preflight.pod_requirements import quantity, requests
from kfjob.compile.pod_templates import PodTemplate

Object = Mapping[str, Any]
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass
class Node:
    """What a node has, and what is left of it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Object]
    allocatable: Mapping[str, float]
    free: dict[str, float] = field(default_factory=dict)

    def take(self, wanted: Mapping[str, float]) -> None:
        """Put a pod on it."""
        for name, amount in wanted.items():
            self.free[name] = self.free.get(name, 0.0) - amount


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """A pod that no node can take, with the reasons as the scheduler would count them."""

    pod: str
    why: str  # one sentence
    is_full: bool  # nodes could hold it, and are taken by others


def node_of(found: Object) -> Node:
    """A node as the API gives it."""
    spec, status = found.get("spec") or {}, found.get("status") or {}
    allocatable = {name: quantity(value) for name, value in (status.get("allocatable") or {}).items()}
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") != "PreferNoSchedule"]
    if spec.get("unschedulable") and not any(taint.get("key") == CORDONED["key"] for taint in taints):
        taints.append(CORDONED)
    labels = found["metadata"].get("labels") or {}
    return Node(found["metadata"]["name"], labels, taints, allocatable, dict(allocatable))


def occupy(nodes: Iterable[Node], pods: Iterable[Object]) -> None:
    """Count what pods that are there already take."""
    by_name = {node.name: node for node in nodes}
    for pod in pods:
        node = by_name.get((pod.get("spec") or {}).get("nodeName", ""))
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            node.take(requests(pod["spec"]) | {"pods": 1.0})


def misfits(nodes: Sequence[Node], kinds: Iterable[PodTemplate]) -> list[Misfit]:
    """Put every pod on the first node that takes it; of each kind, the first that none takes."""
    found = []
    for kind in kinds:
        wanted = requests(kind.spec) | {"pods": 1.0}
        for placed, pod in enumerate(kind.names):
            reasons = {node.name: refusal(node, kind.spec, wanted) for node in nodes}
            place = next((node for node in nodes if not reasons[node.name]), None)
            if place:
                place.take(wanted)
                continue
            is_full = any(not refusal(node, kind.spec, wanted, empty=True) for node in nodes)
            found.append(Misfit(pod=pod, why=_sentence(reasons, len(kind.names) - placed, len(kind.names)), is_full=is_full))
            break
    return found


def refusal(node: Node, pod: Object, wanted: Mapping[str, float], *, empty: bool = False) -> str:
    """Why a node does not take a pod, in words that are the same for nodes that are alike; "" if it does."""
    for taint in node.taints:
        if not any(_tolerates(toleration, taint) for toleration in pod.get("tolerations") or ()):
            value = f"={taint['value']}" if taint.get("value") else ""
            return "cordoned" if taint["key"] == CORDONED["key"] else f"with taint `{taint['key']}{value}:{taint['effect']}`"
    for key, value in (pod.get("nodeSelector") or {}).items():
        if node.labels.get(key) != value:
            return f"without the label `{key}={value}`"
    if not _matches_affinity(node, pod):
        return "outside the node affinity"
    there = node.allocatable if empty else node.free
    for name, amount in wanted.items():
        if amount > there.get(name, 0.0):
            left = "" if empty or node.allocatable.get(name, 0.0) < amount else " left"
            return f"with {_shown(there.get(name, 0.0), name)} {name}{left} ({_shown(amount, name)} wanted)"
    return ""


def _sentence(reasons: Mapping[str, str], without: int, of: int) -> str:
    counted = Counter(reasons.values())
    said = ", ".join(f"{count} {reason}" for reason, count in counted.most_common())
    which = f"{without} of {of} such pods have no node" if of > 1 else "the pod has no node"
    return f"{which}: of {_nodes(len(reasons))}, {said}" if reasons else f"{which}: the cluster has none that is ready"


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint.get("key")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _matches_affinity(node: Node, pod: Object) -> bool:
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if not affinity:
        return True
    return any(
        all(_holds(node.labels, one) for one in term.get("matchExpressions") or ())
        and all(_holds({"metadata.name": node.name}, one) for one in term.get("matchFields") or ())
        for term in affinity.get("nodeSelectorTerms") or ()
    )


def _holds(labels: Mapping[str, str], expression: Object) -> bool:
    there, values = labels.get(expression["key"]), list(expression.get("values") or ())
    match expression["operator"]:
        case "In":
            return there in values
        case "NotIn":
            return there not in values
        case "Exists":
            return there is not None
        case "DoesNotExist":
            return there is None
        case "Gt":
            return there is not None and int(there) > int(values[0])
        case _:  # Lt
            return there is not None and int(there) < int(values[0])


def _shown(amount: float, name: str) -> str:
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        return f"{amount / 2**30:.4g}Gi"
    return f"{amount:g}"
