"""The nodes of a cluster, and which pods of a job they cannot hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kfjob.api.capacity import fit
from kfjob.backends.base import Inventory
from kfjob.backends.resources import CORE, is_node_ready
from kfjob.base.errors import Problem
from kfjob.kinds.base import PodTemplate

_NODE_POOLS_VERSION, _NODE_POOLS = "karpenter.sh/v1", "nodepools"


def read_nodes(cluster: Inventory) -> list[fit.Node]:
    """Return the nodes that are ready, without the pods that run there.

    Raises:
        Forbidden: the user may not list nodes.
    """
    items = cluster.list_objects(CORE, "nodes", namespaced=False)
    return [fit.read_node(item) for item in items if is_node_ready(item)]


def find_missing_nodes(cluster: Inventory, nodes: Iterable[fit.Node], pods: Sequence[PodTemplate]) -> list[Problem]:
    """Return a problem for each kind of pod that finds no node even if the nodes run nothing else.

    It is a warning if Karpenter or EKS Auto Mode may add a node.
    """
    misfits = fit.find_misfits([replace(node, free=dict(node.allocatable)) for node in nodes], pods)
    may_grow = bool(misfits) and _NODE_POOLS in cluster.list_resources(_NODE_POOLS_VERSION)
    return [_describe(misfit, may_grow=may_grow) for misfit in misfits]


def _describe(misfit: fit.Misfit, *, may_grow: bool) -> Problem:
    title = f"no node can hold pod `{misfit.pod}`"
    if may_grow:
        title += " yet; a node pool of the cluster may add one"
        hint = "`kfjob preflight --run` waits for such nodes; `kubectl get nodepools` lists the pools"
        return Problem(title=title, path="resources", detail=misfit.reason, hint=hint, severity="warning")
    hint = "change `resources`, `instance` or `scheduling`, unless an autoscaler adds such nodes"
    return Problem(title=title, path="resources", detail=misfit.reason, hint=hint)
