"""A job's own etcd: a pod and a service that the PyTorchJob owns, and the init container in which the workers wait for it."""

from __future__ import annotations

from kfjob.common_types import JsonObject
from kfjob.plan import JobPlan
from kfjob.spec import api_objects, names

WAIT_SECONDS = 600

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


def compile_etcd(plan: JobPlan, *, owner_uid: str | None) -> list[JsonObject]:
    """Return the service and the pod. The service resolves only after the pod is ready."""
    name = names.etcd_name(plan.name)
    labels = {
        api_objects.LABEL_MANAGED_BY: api_objects.FIELD_MANAGER,
        api_objects.LABEL_LAUNCH: plan.launch,
        api_objects.LABEL_APP_NAME: name,
    }
    metadata: JsonObject = {"name": name, "namespace": plan.namespace, "labels": labels}
    if owner_uid:
        owner = {
            "apiVersion": api_objects.PYTORCHJOB_API_VERSION,
            "kind": api_objects.PYTORCHJOB,
            "name": plan.name,
            "uid": owner_uid,
        }
        metadata["ownerReferences"] = [owner | {"controller": False, "blockOwnerDeletion": True}]
    port = {"name": "client", "port": names.ETCD_PORT, "targetPort": names.ETCD_PORT}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": {api_objects.LABEL_APP_NAME: name, api_objects.LABEL_LAUNCH: plan.launch}, "ports": [port]},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod(plan, name)},
    ]


def _pod(plan: JobPlan, name: str) -> JsonObject:
    listen_url = f"http://0.0.0.0:{names.ETCD_PORT}"
    return {
        "restartPolicy": "Always",
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "etcd",
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
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }


def compile_wait_container(plan: JobPlan) -> JsonObject:
    """Return the workers' init container. It waits until etcd answers and needs only the Python of the job's image."""
    url = f"http://{plan.rendezvous.host}:{plan.rendezvous.port}/health"
    return {"name": names.ETCD_WAIT, "image": plan.image, "command": ["python3", "-c", _WAIT, url, str(WAIT_SECONDS)]}
