"""The objects of an installed guard: a Deployment of one small pod, and the rights that it needs in its namespace. Pure."""

from __future__ import annotations

from msgspec import Struct

from kfjob.backends.resources import APPS, CORE
from kfjob.base.common_types import JsonObject
from kfjob.guard.metrics import PORT
from kfjob.guard.notifications import VARIABLE
from kfjob.guard.records import COMPONENT
from kfjob.kinds.registry import KINDS
from kfjob.objects import api_objects

IMAGE = "kfjob-guard"
"""The image in `manifests/guard`, which a kustomization replaces."""
USER_ID = 10001
"""The user of the image (Dockerfile, target `guard`)."""
_RBAC = "rbac.authorization.k8s.io"
_LABELS = {api_objects.LABEL_APP_NAME: COMPONENT, api_objects.LABEL_MANAGED_BY: api_objects.FIELD_MANAGER}
_SELECTOR = {api_objects.LABEL_APP_NAME: COMPONENT}

Rule = tuple[str, tuple[str, ...], tuple[str, ...]]
"""API group, resources and verbs."""


def _list_kind_rules() -> list[Rule]:
    """Return the rights on the jobs of each kind and on what a job needs before it, such as its runtime."""
    rules: list[Rule] = []
    for kind in KINDS.values():
        verbs: dict[str, list[str]] = {}
        for permission in kind.permissions:
            if permission.group == kind.group and not permission.subresource:
                verbs.setdefault(permission.resource, []).append(permission.verb)
        rules += [(kind.group, (resource,), tuple(allowed)) for resource, allowed in verbs.items()]
        rules.append((kind.group, (f"{kind.resource}/finalizers",), ("update",)))  # to own the job's etcd
    return rules


RULES: tuple[Rule, ...] = (
    *_list_kind_rules(),
    ("", ("pods",), ("create", "get", "list", "watch", "patch", "delete")),
    ("", ("services",), ("create", "get", "list", "patch")),
    ("", ("pods/log",), ("get",)),
    ("", ("events",), ("create", "list")),
    ("coordination.k8s.io", ("leases",), ("create", "get", "list", "update", "delete")),
    ("kueue.x-k8s.io", ("workloads", "localqueues"), ("get", "list")),
)
"""The rights of the guard. A relaunch creates what a submit creates: the job, and its etcd's pod and service."""


class GuardOptions(Struct, frozen=True, kw_only=True):
    """What a person selects for the guard of a namespace."""

    image: str = IMAGE
    claim: str | None = None  # a volume claim for the archive
    archive: str | None = None  # s3://BUCKET/PREFIX for a copy of the archive
    archive_secret: str | None = None  # a Secret whose keys are variables of boto3
    notify_secret: str | None = None  # a Secret with the addresses of notifications


def make_objects(options: GuardOptions, *, namespace: str | None = None) -> list[JsonObject]:
    """Return the objects. Without a namespace, who applies them selects it."""
    objects = [_make_account(), _make_role(), _make_binding(), _make_deployment(options)]
    if namespace:
        for item in objects:
            item["metadata"]["namespace"] = namespace
    return objects


def _make_metadata() -> JsonObject:
    return {"name": COMPONENT, "labels": dict(_LABELS)}


def _make_account() -> JsonObject:
    return {"apiVersion": CORE, "kind": "ServiceAccount", "metadata": _make_metadata()}


def _make_role() -> JsonObject:
    rules = [{"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)} for group, resources, verbs in RULES]
    return {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": _make_metadata(), "rules": rules}


def _make_binding() -> JsonObject:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _make_metadata(),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": COMPONENT},
        "subjects": [{"kind": "ServiceAccount", "name": COMPONENT}],
    }


def _make_deployment(options: GuardOptions) -> JsonObject:
    claim = {"persistentVolumeClaim": {"claimName": options.claim}}
    archive = claim if options.claim else {"emptyDir": {"sizeLimit": "5Gi"}}
    addresses = {"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": options.notify_secret, "key": VARIABLE}}}
    container = {
        "name": "guard",
        "image": options.image,
        "command": ["kfjob", "guard", "run", "--metrics-port", str(PORT)],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "env": [
            {"name": "KFJOB_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "KFJOB_STATE", "value": "/state/kfjob"},  # its group may write the volume itself (fsGroup)
            {"name": "KFJOB_IMAGE_CHECK", "value": "false"},
            {"name": "HOME", "value": "/tmp"},  # noqa: S108 - a volume of the pod
            *([{"name": "KFJOB_ARCHIVE", "value": options.archive}] if options.archive else []),
            *([addresses] if options.notify_secret else []),
        ],
        **({"envFrom": [{"secretRef": {"name": options.archive_secret}}]} if options.archive_secret else {}),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "state", "mountPath": "/state"}, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }
    pod = {
        "serviceAccountName": COMPONENT,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "state", **archive}, {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
    }
    return {
        "apiVersion": APPS,
        "kind": "Deployment",
        "metadata": _make_metadata(),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": dict(_SELECTOR)},
            "template": {"metadata": {"labels": dict(_LABELS)}, "spec": pod},
        },
    }
