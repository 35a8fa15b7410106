"""Check ResourceQuotas against all pods of a job together. Pure.

The API server counts pod by pod (Kubernetes v1.34, pkg/quota/v1/evaluator/core/pods.go), so the dry run of one pod does not
cover the other pods: of eight pods, the quota may admit five.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from kfjob.api.capacity.pod_requirements import format_amount, sum_limits, sum_requests
from kfjob.base.common_types import JsonMapping
from kfjob.base.units import parse_quantity
from kfjob.kinds.base import PodTemplate
from kfjob.kinds.registry import get_kind, is_job

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_ROUNDING = 1e-9


def sum_usage(templates: Iterable[PodTemplate], manifests: Iterable[JsonMapping]) -> dict[str, float]:
    """Return what the job adds to quotas, by the names that quotas use."""
    total: defaultdict[str, float] = defaultdict(float)
    for template in templates:
        count = len(template.names)
        for name in ("pods", "count/pods", "services", "count/services"):  # the operator creates a service for each pod
            total[name] += count
        for name, amount in sum_requests(template.spec).items():
            total[f"requests.{name}"] += amount * count
            if name in _COMPUTE or name.startswith("hugepages-"):
                total[name] += amount * count
        for name, amount in sum_limits(template.spec).items():
            total[f"limits.{name}"] += amount * count
    for manifest in manifests:
        if is_job(manifest):
            kind = get_kind(manifest)
            total[f"count/{kind.resource}{kind.group and f'.{kind.group}'}"] += 1
    return dict(total)


def explain_exceeded(quota: JsonMapping, usage: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for every limit of a quota that the job would exceed."""
    status = quota.get("status") or {}
    hard, used = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}, status.get("used") or {}
    for name, limit in hard.items():
        current = parse_quantity(used.get(name, 0))
        if (added := usage.get(name, 0.0)) and current + added > parse_quantity(limit) * (1 + _ROUNDING):
            yield f"{name}: the job needs {format_amount(name, added)}, {format_amount(name, current)} in use, limit {limit}"
