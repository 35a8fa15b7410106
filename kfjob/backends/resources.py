"""API versions and resources that kfjob reads or creates beside the PyTorchJob, and the state of nodes."""

from __future__ import annotations

from kfjob.base.common_types import JsonMapping
from kfjob.objects import api_objects

CORE = "v1"
APPS = "apps/v1"
CUSTOM_RESOURCE_DEFINITIONS = "apiextensions.k8s.io/v1"

CREATABLE_KINDS = {
    api_objects.PYTORCHJOB: api_objects.PYTORCHJOBS,
    "ConfigMap": "configmaps",
    "CronJob": "cronjobs",
    "DaemonSet": "daemonsets",
    "Deployment": "deployments",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "Ingress": "ingresses",
    "Job": "jobs",
    "NetworkPolicy": "networkpolicies",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "ReplicaSet": "replicasets",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "StatefulSet": "statefulsets",
}
"""Kinds that a template may hold, with their resources. All of them have a namespace."""
_KUBERNETES_GROUPS = frozenset(
    ("", "apps", "autoscaling", "batch", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io")
)
_LASTING_KINDS = frozenset(("PersistentVolumeClaim",))
"""Kinds whose objects hold data that must outlive the job."""


def is_creatable(item: JsonMapping) -> bool:
    """Return whether kfjob can create an object: its kind is one of Kubernetes' own, or a PyTorchJob."""
    group = item["apiVersion"].rpartition("/")[0]
    own_group = api_objects.PYTORCHJOB_GROUP if item["kind"] == api_objects.PYTORCHJOB else None
    is_known = group == own_group if own_group else group in _KUBERNETES_GROUPS
    return is_known and item["kind"] in CREATABLE_KINDS


def outlives_job(item: JsonMapping) -> bool:
    """Return whether an object that a template creates must not be deleted with the job."""
    return item["kind"] in _LASTING_KINDS


def is_node_ready(node: JsonMapping) -> bool:
    """Return whether the node has the condition `Ready`."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
