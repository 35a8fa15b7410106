"""A job's own etcd: a pod and a service that the job owns, and the init container in which the workers wait for it."""

from __future__ import annotations

from kfjob.base.common_types import JsonObject
from kfjob.joblog.events import ETCD_CONTAINER, ETCD_WAIT
from kfjob.objects import api_objects, names
from kfjob.plan import JobPlan
from kfjob.spec.scheduling import Toleration

WAIT_SECONDS = 600
"""Time that workers wait for the job's own etcd."""

_WAIT = """
import sys, time, urllib.request
url, deadline = sys.argv[1], time.monotonic() + float(sys.argv[2])
while True:
    try:
        urllib.request.urlopen(url, timeout=5).read()
        break
    except OSError as err:
        if time.monotonic() > deadline:
            sys.exit(f"error: etcd did not answer at {url}: {err}")
        time.sleep(1)
""".strip()

_WAIT_RESOURCES = {"cpu": "100m", "memory": "128Mi"}
"""Requests equal limits, so that the pods keep their class of service; a quota can require both."""
_WAIT_SECURITY: JsonObject = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_USER_KEYS = ("runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile")
"""Keys of the training container's securityContext that hold for the init container too."""
_POD_SECURITY: JsonObject = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER_SECURITY: JsonObject = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""What the Pod Security Standard `restricted` demands."""


def compile_etcd(plan: JobPlan) -> list[JsonObject]:
    """Return the service and the pod, which the job owns once it exists. The service resolves only after the pod is ready."""
    name = names.etcd_name(plan.name)
    labels = {
        api_objects.LABEL_MANAGED_BY: api_objects.FIELD_MANAGER,
        api_objects.LABEL_LAUNCH: plan.launch,
        api_objects.LABEL_APP_NAME: name,
    }
    metadata: JsonObject = {"name": name, "namespace": plan.namespace, "labels": labels}
    protection = {"annotations": api_objects.NOT_EVICTABLE}  # the agents of an elastic job need it too
    port = {"name": "client", "port": names.ETCD_PORT, "targetPort": names.ETCD_PORT}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": {api_objects.LABEL_APP_NAME: name, api_objects.LABEL_LAUNCH: plan.launch}, "ports": [port]},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, **protection}, "spec": _pod(plan, name)},
    ]


def _pod(plan: JobPlan, name: str) -> JsonObject:
    listen_url = f"http://0.0.0.0:{names.ETCD_PORT}"
    return {
        **_make_placement(plan),
        "restartPolicy": "Always",
        "automountServiceAccountToken": False,
        "securityContext": _POD_SECURITY,
        "containers": [
            {
                "name": ETCD_CONTAINER,
                "image": plan.own_etcd_image,
                # torch uses etcd's v2 API: 3.4 and 3.5 need this flag for it, 3.6 does not have it
                "command": [
                    "etcd",
                    "--enable-v2=true",
                    "--data-dir=/data/etcd",
                    f"--listen-client-urls={listen_url}",
                    f"--advertise-client-urls=http://{name}:{names.ETCD_PORT}",
                ],
                "ports": [{"name": "client", "containerPort": names.ETCD_PORT}],
                "readinessProbe": {"httpGet": {"path": "/health", "port": names.ETCD_PORT}, "periodSeconds": 1},
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
                "securityContext": _CONTAINER_SECURITY,
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }


def _make_placement(plan: JobPlan) -> JsonObject:
    """Return the pod's pull secrets, priority and tolerations: the job's, because it cannot start without its etcd."""
    fields: JsonObject = {
        "imagePullSecrets": [{"name": secret} for secret in plan.image_pull_secrets],
        "priorityClassName": plan.scheduling.priority_class,
        "tolerations": [compile_toleration(toleration) for toleration in plan.scheduling.tolerations],
    }
    return {name: value for name, value in fields.items() if value}


def compile_toleration(toleration: Toleration) -> JsonObject:
    """Return a toleration in Kubernetes' terms."""
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.seconds,
    }
    return {key: value for key, value in fields.items() if value is not None}


def compile_wait_container(plan: JobPlan) -> JsonObject:
    """Return the workers' init container. It waits until etcd answers and needs only the Python of the job's image."""
    url = f"http://{plan.rendezvous.host}:{plan.rendezvous.port}/health"
    user_context = plan.spec.pod.container_security_context
    container: JsonObject = {
        "name": ETCD_WAIT,
        "image": plan.image,
        "command": ["python3", "-c", _WAIT, url, str(WAIT_SECONDS)],
        "resources": {"requests": dict(_WAIT_RESOURCES), "limits": dict(_WAIT_RESOURCES)},
        "securityContext": _WAIT_SECURITY | {key: value for key, value in user_context.items() if key in _USER_KEYS},
    }
    if plan.spec.image_pull_policy:
        container["imagePullPolicy"] = plan.spec.image_pull_policy
    return container
