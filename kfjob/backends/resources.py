"""API versions and resources that kfjob reads or creates beside jobs, and the state of nodes."""

from __future__ import annotations

from kfjob.base.common_types import JsonMapping
from kfjob.kinds.registry import KINDS, find_prerequisite_resource, is_job

CORE = "v1"
APPS = "apps/v1"
CUSTOM_RESOURCE_DEFINITIONS = "apiextensions.k8s.io/v1"

_RESOURCES = {
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
"""Kinds that a template may hold beside its job, with their resources. All of them have a namespace."""
_OTHER_RESOURCES = {"Event": "events", "Lease": "leases"}
"""Kinds that the guard writes, and no template holds."""
_KUBERNETES_GROUPS = frozenset(
    ("", "apps", "autoscaling", "batch", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io")
)
_LASTING_KINDS = frozenset(("PersistentVolumeClaim",))
"""Kinds whose objects hold data that must outlive the job."""


def is_creatable(item: JsonMapping) -> bool:
    """Return whether kfjob can create an object: a job or its prerequisite, or one of Kubernetes' own kinds."""
    is_known = is_job(item) or find_prerequisite_resource(item) is not None
    return is_known or (item["kind"] in _RESOURCES and item["apiVersion"].rpartition("/")[0] in _KUBERNETES_GROUPS)


def get_resource(item: JsonMapping) -> str:
    """Return the resource of an object that kfjob can create, as URLs name it: `pods`."""
    if is_job(item):
        return KINDS[item["kind"]].resource
    return find_prerequisite_resource(item) or {**_RESOURCES, **_OTHER_RESOURCES}[item["kind"]]


def outlives_job(item: JsonMapping) -> bool:
    """Return whether an object that a template creates must not be deleted with the job."""
    return item["kind"] in _LASTING_KINDS


def is_node_ready(node: JsonMapping) -> bool:
    """Return whether the node has the condition `Ready`."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
