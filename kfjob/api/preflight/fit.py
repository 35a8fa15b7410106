"""Find which nodes can hold which pods, by the scheduler's rules on resources, selectors, affinity and taints. Pure.

Mirrors Kubernetes v1.34, pkg/scheduler/framework/plugins: noderesources, nodeaffinity, tainttoleration, nodeunschedulable,
interpodaffinity and podtopologyspread. The last two are evaluated among the pods of one template only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kfjob.api.preflight.pod_requirements import format_amount, sum_requests
from kfjob.base.common_types import JsonMapping
from kfjob.base.text import plural
from kfjob.base.units import parse_quantity
from kfjob.kinds.base import PodTemplate
from kfjob.kinds.pytorchjob import operator_api

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
    """Add every pod to a node that it fits on. Return, for each template, the first pod that fits on none."""
    return [misfit for template in templates if (misfit := _place_in_one_domain(nodes, template))]


def _place_in_one_domain(nodes: Sequence[Node], template: PodTemplate) -> Misfit | None:
    """Place the pods of a template; pods with affinity to each other need one domain that holds them all."""
    topology = Topology.of(template)
    if not topology.together:
        return _place(nodes, template, topology)
    key = topology.together[0]
    best: tuple[int, Misfit] | None = None
    for domain in sorted({node.labels[key] for node in nodes if key in node.labels}):
        members = [node for node in nodes if node.labels.get(key) == domain]
        before = [dict(node.free) for node in members]
        misfit = _place(members, template, topology)
        if misfit is None:
            return None
        for node, free in zip(members, before, strict=True):
            node.free = free
        best = max(best or (-1, misfit), (template.names.index(misfit.pod), misfit), key=lambda item: item[0])
    if best is None:
        reason = f"no node for the pods together: no node has label `{key}`"
        return Misfit(pod=template.names[0], reason=reason, is_full=False)
    return replace(best[1], reason=f"{best[1].reason} (the pods need one `{key}`)")


def _place(nodes: Sequence[Node], template: PodTemplate, topology: Topology) -> Misfit | None:
    requests = sum_requests(template.spec) | {"pods": 1.0}
    placed: Counter[str] = Counter()
    for index, pod in enumerate(template.names):
        reasons = {
            node.name: explain_misfit(node, template.spec, requests) or topology.explain(node, nodes, placed) for node in nodes
        }
        fitting = [node for node in nodes if not reasons[node.name]]
        if fitting:
            node = min(fitting, key=lambda node: topology.crowding(node, nodes, placed))
            node.add_pod(requests)
            placed[node.name] += 1
            continue
        is_full = any(
            not explain_misfit(node, template.spec, requests, empty=True) and not topology.explain(node, nodes, placed)
            for node in nodes
        )
        reason = _format_reasons(reasons, len(template.names) - index, len(template.names))
        return Misfit(pod=pod, reason=reason, is_full=is_full)
    return None


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The rules of a template about where its pods are relative to each other."""

    together: tuple[str, ...]  # keys of pod affinity: all pods in one domain
    apart: tuple[str, ...]  # keys of pod anti-affinity: one pod in each domain
    spread: tuple[tuple[str, int], ...]  # keys and skews of spread constraints

    @classmethod
    def of(cls, template: PodTemplate) -> Topology:
        """Return the required rules whose selectors match the template's own pods."""
        job = template.names[0].rpartition("-")[0].rpartition("-")[0]
        labels = {operator_api.LABEL_JOB_NAME: job, **(template.metadata.get("labels") or {})}
        affinity = template.spec.get("affinity") or {}

        def keys(kind: str) -> tuple[str, ...]:
            terms = (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ()
            return tuple(term["topologyKey"] for term in terms if _selects(term.get("labelSelector"), labels))

        spread = tuple(
            (constraint["topologyKey"], int(constraint["maxSkew"]))
            for constraint in template.spec.get("topologySpreadConstraints") or ()
            if constraint.get("whenUnsatisfiable") == "DoNotSchedule" and _selects(constraint.get("labelSelector"), labels)
        )
        return cls(together=keys("podAffinity"), apart=keys("podAntiAffinity"), spread=spread)

    def explain(self, node: Node, nodes: Sequence[Node], placed: Mapping[str, int]) -> str:
        """Return why the node cannot have one more pod; empty if it can."""
        for key in self.apart:
            if key in node.labels and _count_by_domain(nodes, key, placed)[node.labels[key]]:
                return f"with another pod of the job in its `{key}`"
        for key, max_skew in self.spread:
            if key not in node.labels:
                return f"without label `{key}`"
            counts = _count_by_domain(nodes, key, placed)
            if counts[node.labels[key]] + 1 - min(counts.values()) > max_skew:
                return f"with too many pods of the job in its `{key}` (maxSkew {max_skew})"
        return ""

    def crowding(self, node: Node, nodes: Sequence[Node], placed: Mapping[str, int]) -> int:
        """Return how many pods the node's domains have, so that pods spread over the domains."""
        return sum(_count_by_domain(nodes, key, placed)[node.labels[key]] for key, _ in self.spread)


def _count_by_domain(nodes: Sequence[Node], key: str, placed: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for node in nodes:
        if key in node.labels:
            counts[node.labels[key]] += placed.get(node.name, 0)
    return counts


def _selects(selector: JsonMapping | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects these labels; a missing selector selects nothing."""
    if selector is None:
        return False
    matches_labels = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return matches_labels and all(matches_expression(labels, item) for item in selector.get("matchExpressions") or ())


def explain_misfit(node: Node, pod: JsonMapping, requests: Mapping[str, float], *, empty: bool = False) -> str:
    """Return why a pod does not fit on a node, with the same text for similar nodes; empty if it fits.

    With `empty`, ignore the pods that the node already has.
    """
    for taint in node.taints:
        if not any(tolerates(toleration, taint) for toleration in pod.get("tolerations") or ()):
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


def tolerates(toleration: JsonMapping, taint: JsonMapping) -> bool:
    """Return whether a toleration is for this taint."""
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
        all(matches_expression(node.labels, expression) for expression in term.get("matchExpressions") or ())
        and all(matches_expression({"metadata.name": node.name}, expression) for expression in term.get("matchFields") or ())
        for term in affinity.get("nodeSelectorTerms") or ()
    )


def list_required_expressions(pod: JsonMapping) -> list[list[JsonMapping]]:
    """Return the alternatives of a pod's node selector and required node affinity, each a list of expressions on labels."""
    selected = [{"key": key, "operator": "In", "values": [value]} for key, value in (pod.get("nodeSelector") or {}).items()]
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = (affinity or {}).get("nodeSelectorTerms") or [{}]
    return [[*selected, *(term.get("matchExpressions") or ())] for term in terms]


def matches_expression(labels: Mapping[str, str], expression: JsonMapping) -> bool:
    """Return whether labels match one expression of a selector."""
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
