"""What is asked of the API server, as values. Pure.

A request knows its meaning in Kubernetes' own terms (verb, resource), so that an error can say which right is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from kfjob.spec import api_objects

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
WATCH_SECONDS = 240
"""How long a watch lasts until the server ends it and we resume; a dead connection is noticed after that at the latest."""

EVENTS_AT_ONCE = 500

Query = tuple[tuple[str, str], ...]


class Request(Struct, frozen=True, kw_only=True):
    """One HTTP request."""

    method: str
    path: str
    verb: str  # create | get | list | watch | update | patch | delete
    resource: str  # pytorchjobs | pods | services | …
    namespace: str
    name: str = ""
    subresource: str = ""
    query: Query = ()
    body: Any = None  # what is sent as JSON: an object, or the operations of a JSON patch
    content_type: str = JSON

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does the same as sending it once: all but a create."""
        return self.method != "POST"


class Selection(Struct, frozen=True, kw_only=True):
    """Objects of one kind: what a list and a watch are about."""

    resource: str
    namespace: str
    query: Query = ()
    name: str = ""  # if it can only be one

    def listing(self) -> Request:
        """All of them, now."""
        return _request("GET", "list", self.resource, self.namespace, query=self.query)

    def watching(self, resource_version: str) -> Request:
        """Every change after `resource_version`."""
        how = (("watch", "true"), ("resourceVersion", resource_version), ("allowWatchBookmarks", "true"))
        query = (*self.query, *how, ("timeoutSeconds", str(WATCH_SECONDS)))
        return _request("GET", "watch", self.resource, self.namespace, query=query)


def one(resource: str, namespace: str, name: str) -> Selection:
    """The one object of that name."""
    return Selection(resource=resource, namespace=namespace, name=name, query=(("fieldSelector", f"metadata.name={name}"),))


def of_job(resource: str, namespace: str, job: str) -> Selection:
    """What the operator made for a job of that name: pods or services."""
    return Selection(resource=resource, namespace=namespace, query=(("labelSelector", f"{api_objects.LABEL_JOB_NAME}={job}"),))


def every_job(namespace: str) -> Selection:
    """All PyTorchJobs of a namespace."""
    return Selection(resource=api_objects.PYTORCHJOBS, namespace=namespace)


def get(resource: str, namespace: str, name: str) -> Request:
    """One object."""
    return _request("GET", "get", resource, namespace, name=name)


def nodes() -> Request:
    """All nodes."""
    return Request(method="GET", path="/api/v1/nodes", verb="list", resource="nodes", namespace="")


def create(manifest: Mapping[str, Any], *, dry_run: bool = False) -> Request:
    """A new object. Fields that the cluster does not know are refused, not dropped: an old operator would ignore them.

    `dry_run`: the server goes through all of it (webhooks, quotas, the schema) and then keeps nothing.
    """
    resource = RESOURCES[manifest["kind"]]
    metadata = manifest["metadata"]
    query = (("fieldManager", api_objects.FIELD_MANAGER), ("fieldValidation", "Strict"), *_DRY_RUN[dry_run])
    group = _group(manifest["apiVersion"])
    made = _request("POST", "create", resource, metadata["namespace"], group=group, query=query, body=manifest)
    return replace(made, name=metadata["name"])  # a create has its object's name in the body, not in the path


def dry_replace(manifest: Mapping[str, Any], *, resource_version: str) -> Request:
    """What the server would make of a job if `manifest` took its place; it keeps nothing."""
    metadata = manifest["metadata"]
    query = (("fieldManager", api_objects.FIELD_MANAGER), ("fieldValidation", "Strict"), *_DRY_RUN[True])
    body = {**manifest, "metadata": {**metadata, "resourceVersion": resource_version}}
    return _request(
        "PUT", "update", api_objects.PYTORCHJOBS, metadata["namespace"], name=metadata["name"], query=query, body=body
    )


def apply(manifest: Mapping[str, Any]) -> Request:
    """A server-side apply."""
    metadata = manifest["metadata"]
    query = (("fieldManager", api_objects.FIELD_MANAGER), ("force", "true"), ("fieldValidation", "Strict"))
    resource = RESOURCES[manifest["kind"]]
    return _request(
        "PATCH",
        "patch",
        resource,
        metadata["namespace"],
        name=metadata["name"],
        query=query,
        body=manifest,
        content_type=APPLY_PATCH,
    )


def patch(resource: str, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]) -> Request:
    """A JSON patch (RFC 6902)."""
    return _request("PATCH", "patch", resource, namespace, name=name, body=operations, content_type=JSON_PATCH)


def delete_job(namespace: str, name: str, uid: str) -> Request:
    """Delete this very job; it stays visible until everything that it owns is gone."""
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
    return _request("DELETE", "delete", api_objects.PYTORCHJOBS, namespace, name=name, body=body)


def events(namespace: str, *, page: str = "") -> Request:
    """A page of all events of a namespace."""
    query = (("limit", str(EVENTS_AT_ONCE)), *((("continue", page),) if page else ()))
    return _request("GET", "list", "events", namespace, query=query)


def workloads(namespace: str, job_uid: str) -> Request:
    """Kueue's Workload of a job (v0.14 pkg/controller/constants)."""
    query = (("labelSelector", f"{api_objects.LABEL_KUEUE_JOB_UID}={job_uid}"),)
    return _request(
        "GET", "list", api_objects.KUEUE_WORKLOADS, namespace, group=f"/apis/{api_objects.KUEUE_API_VERSION}", query=query
    )


def pod_log(
    namespace: str,
    pod: str,
    *,
    container: str,
    tail: int | None = None,
    since: int | None = None,
    previous: bool = False,
    follow: bool = False,
) -> Request:
    """The log of a container, every line with its time. `since` is in nanoseconds; the API server cuts it to whole seconds."""
    query = [("container", container), ("timestamps", "true")]
    if tail is not None:
        query.append(("tailLines", str(tail)))
    if since is not None:
        query.append(("sinceTime", datetime.fromtimestamp(since // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
    if previous:
        query.append(("previous", "true"))
    if follow:
        query.append(("follow", "true"))
    return _request("GET", "get", "pods", namespace, name=pod, subresource="log", query=tuple(query))


RESOURCES = {
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
"""What can be created: the kinds that come with a training job, all of them with a namespace."""
_DRY_RUN: dict[bool, Query] = {False: (), True: (("dryRun", "All"),)}


def _group(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _request(
    method: str,
    verb: str,
    resource: str,
    namespace: str,
    *,
    name: str = "",
    subresource: str = "",
    group: str | None = None,
    **more: Any,
) -> Request:
    group = group or (f"/apis/{api_objects.PYTORCHJOB_API_VERSION}" if resource == api_objects.PYTORCHJOBS else "/api/v1")
    parts = (group, "namespaces", quote(namespace, safe=""), resource, quote(name, safe=""), subresource)
    path = "/".join(part for part in parts if part)
    return Request(
        method=method,
        path=path,
        verb=verb,
        resource=resource,
        namespace=namespace,
        name=name,
        subresource=subresource,
        **more,
    )
