"""API versions and resources that kfjob reads or creates beside the PyTorchJob, and the state of nodes."""

from __future__ import annotations

from kfjob.common_types import JsonMapping
from kfjob.spec import api_objects

CORE = "v1"
APPS = "apps/v1"
CUSTOM_RESOURCE_DEFINITIONS = "apiextensions.k8s.io/v1"

CREATABLE_KINDS = {
    api_objects.PYTORCHJOB: api_objects.PYTORCHJOBS,
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "StatefulSet": "statefulsets",
}
"""Kinds that a template may hold, with their resources. All of them have a namespace."""


def is_node_ready(node: JsonMapping) -> bool:
    """Return whether the node has the condition `Ready`."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
