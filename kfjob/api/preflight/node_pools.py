"""Find which node pools of Karpenter or EKS Auto Mode can add a node for a pod. Pure.

A pool has requirements, labels, taints and limits (karpenter.sh/v1 NodePool). A label that a pool does not constrain can have
any value if Karpenter knows it; every other label is missing on the pool's nodes. Karpenter ignores startup taints, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kfjob.api.preflight.fit import list_required_expressions, matches_expression, tolerates
from kfjob.base.common_types import JsonMapping
from kfjob.base.units import parse_quantity
from kfjob.plan.resolve import INSTANCE_LABEL
from kfjob.spec.instances import find_instance

API_VERSION = "karpenter.sh/v1"
RESOURCE = "nodepools"

_FREE_LABELS = re.compile(
    r"node\.kubernetes\.io/instance-type|topology\.kubernetes\.io/(zone|region)|kubernetes\.io/(arch|os|hostname)"
    r"|karpenter\.sh/(capacity-type|nodepool)|karpenter\.k8s\.aws/.*|eks\.amazonaws\.com/.*|topology\.k8s\.aws/.*"
)
"""Labels that Karpenter sets from the instance type and the place of a node (karpenter.sh, "Well-Known Labels")."""
_PROVIDERS = ("karpenter.k8s.aws", "eks.amazonaws.com")


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """A node pool."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[JsonMapping]
    requirements: Sequence[JsonMapping]
    limits: Mapping[str, float]
    used: Mapping[str, float]


def read_node_pool(manifest: JsonMapping) -> NodePool:
    """Return the node pool of an API object."""
    name, spec = manifest["metadata"]["name"], manifest.get("spec") or {}
    template = spec.get("template") or {}
    node = template.get("spec") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    return NodePool(
        name=name,
        labels={**labels, "karpenter.sh/nodepool": name},
        taints=[taint for taint in node.get("taints") or () if taint.get("effect") != "PreferNoSchedule"],
        requirements=node.get("requirements") or (),
        limits=_read_amounts(spec.get("limits")),
        used=_read_amounts((manifest.get("status") or {}).get("resources")),
    )


def _read_amounts(amounts: JsonMapping | None) -> dict[str, float]:
    return {name: parse_quantity(str(value)) for name, value in (amounts or {}).items()}


def explain_pool_misfit(pool: NodePool, pod: JsonMapping, requests: Mapping[str, float]) -> str:
    """Return why a pool adds no node for a pod; empty if it can add one."""
    for taint in pool.taints:
        if not any(tolerates(toleration, taint) for toleration in pod.get("tolerations") or ()):
            return f"has taint `{taint['key']}:{taint['effect']}`"
    for name, limit in pool.limits.items():
        if pool.used.get(name, 0.0) + requests.get(name, 0.0) > limit:
            return f"has reached its limit of {name}"
    terms = list_required_expressions(pod)
    reasons = [_explain_term(pool, term) for term in terms]
    return "" if not all(reasons) else reasons[0]


def _explain_term(pool: NodePool, expressions: Sequence[JsonMapping]) -> str:
    """Return why no node of the pool matches all expressions of a pod; empty if one can."""
    for expression in expressions:
        if reason := _explain_expression(pool, expression):
            return reason
    instance = next((e["values"][0] for e in expressions if e["key"] == INSTANCE_LABEL and e["operator"] == "In"), None)
    if instance is None:
        return ""
    labels = dict(_derive_labels(instance))
    for requirement in pool.requirements:
        if requirement["key"] in labels and not matches_expression(labels, requirement):
            return f"excludes {instance} by `{requirement['key']}`"
    return ""


def _explain_expression(pool: NodePool, expression: JsonMapping) -> str:
    key = expression["key"]
    if key in pool.labels:
        return "" if matches_expression(pool.labels, expression) else f"has label `{key}={pool.labels[key]}`"
    requirements = [requirement for requirement in pool.requirements if requirement["key"] == key]
    values = list(expression.get("values") or ())
    if expression["operator"] == "In" and requirements:
        if any(all(matches_expression({key: value}, requirement) for requirement in requirements) for value in values):
            return ""
        return f"has no nodes with `{key}={values[0]}`"
    if expression["operator"] == "DoesNotExist" and requirements:
        return f"sets label `{key}`"
    if requirements or expression["operator"] in ("NotIn", "DoesNotExist") or _FREE_LABELS.fullmatch(key):
        return ""
    return f"sets no label `{key}`"


def _derive_labels(instance_type: str) -> Iterator[tuple[str, str]]:
    """Yield the labels that Karpenter and Auto Mode derive from an instance type."""
    family, _, size = instance_type.partition(".")
    category = re.match(r"[a-z]+", family)
    generation = re.search(r"\d+", family)
    instance = find_instance(instance_type)
    values = {
        "instance-family": family,
        "instance-size": size,
        "instance-category": category[0] if category else None,
        "instance-generation": generation[0] if generation else None,
        "instance-cpu": str(instance.vcpus) if instance else None,
        "instance-gpu-count": str(instance.gpus) if instance and instance.gpus else None,
    }
    yield INSTANCE_LABEL, instance_type
    if instance:
        yield "kubernetes.io/arch", instance.architecture
    for provider in _PROVIDERS:
        for name, value in values.items():
            if value:
                yield f"{provider}/{name}", value
