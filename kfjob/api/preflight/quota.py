"""ResourceQuotas against all pods of a job together. Pure.

The API server counts pod by pod (Kubernetes v1.34, pkg/quota/v1/evaluator/core/pods.go), so the dry run of one pod says nothing
of the others: a job of eight may get five.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kfjob.api.preflight.pod_requirements import limits, quantity, requests
from kfjob.compile.pod_templates import PodTemplate
from kfjob.spec import api_objects

Object = Mapping[str, Any]
_PLAIN = ("cpu", "memory", "ephemeral-storage")


def usage(kinds: Iterable[PodTemplate], objects: Iterable[Object]) -> dict[str, float]:
    """What the job adds, by the names that quotas use."""
    total: defaultdict[str, float] = defaultdict(float)
    for kind in kinds:
        count = len(kind.names)
        for name in ("pods", "count/pods", "services", "count/services"):  # the operator makes a service for each pod
            total[name] += count
        for name, amount in requests(kind.spec).items():
            total[f"requests.{name}"] += amount * count
            if name in _PLAIN or name.startswith("hugepages-"):
                total[name] += amount * count
        for name, amount in limits(kind.spec).items():
            total[f"limits.{name}"] += amount * count
    for one in objects:
        if one["kind"] == api_objects.PYTORCHJOB:
            total[f"count/{api_objects.PYTORCHJOBS}.{api_objects.PYTORCHJOB_GROUP}"] += 1
    return dict(total)


def exceeded(quota: Object, wanted: Mapping[str, float]) -> Iterator[str]:
    """Every limit of a quota that the job would pass: what it wants, what is taken, what is allowed."""
    status = quota.get("status") or {}
    hard, used = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}, status.get("used") or {}
    for name, limit in hard.items():
        there = quantity(used.get(name, 0))
        if (more := wanted.get(name, 0.0)) and there + more > quantity(limit) * (1 + 1e-9):
            yield f"{name}: the job wants {_shown(name, more)}, {_shown(name, there)} is taken, the limit is {limit}"


def unsaid(quota: Object, kinds: Iterable[PodTemplate]) -> Iterator[str]:
    """Resources that a quota makes every container say, and that some container does not: such a pod is refused."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    for kind in kinds:
        for container in kind.spec.get("containers") or ():
            resources = container.get("resources") or {}
            said = {f"requests.{name}" for name in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}}
            said |= {f"limits.{name}" for name in resources.get("limits") or {}}
            said |= {name.partition(".")[2] for name in said if name.startswith("requests.")}
            for name in hard:
                plain = name.removeprefix("requests.").removeprefix("limits.")
                if plain in _PLAIN[:2] and name not in said:
                    yield f"{name} is not said by container `{container['name']}` of `{kind.names[0]}`"


def _shown(name: str, amount: float) -> str:
    return f"{amount / 2**30:.4g}Gi" if "memory" in name or "storage" in name else f"{amount:g}"
