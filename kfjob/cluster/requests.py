"""Requests to the API server, as values. Pure.

A request knows its verb and resource in Kubernetes' own terms, so an error can name the missing permission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from kfjob.backends.resources import get_resource
from kfjob.base.units import SECOND
from kfjob.kinds.base import JobKind
from kfjob.kinds.registry import is_job
from kfjob.objects import api_objects

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
MAX_PENDING = 1000
"""Waiting Workloads that are read of a queue: the position of one behind them is not shown."""
WATCH_SECONDS = 240
"""Duration of one watch request; the server then ends it and kfjob resumes it. A dead connection is noticed by then."""
EVENTS_PER_PAGE = 500

Query = tuple[tuple[str, str], ...]

DRY_RUN: Query = (("dryRun", "All"),)


class Request(Struct, frozen=True, kw_only=True):
    """One HTTP request."""

    method: str
    path: str
    verb: str  # create | get | list | watch | update | patch | delete
    resource: str  # pytorchjobs | pods | services | …
    namespace: str
    name: str = ""
    job_kind: str = ""  # the kind, if the resource is that of jobs
    subresource: str = ""
    query: Query = ()
    body: Any = None  # sent as JSON: an object, or the operations of a JSON patch
    content_type: str = JSON

    @property
    def repeatable(self) -> bool:
        """Whether sending the request twice has the same effect as sending it once: true for all but a create."""
        return self.method != "POST"

    @property
    def is_stream(self) -> bool:
        """Whether the response takes as long as the server has something to send."""
        return self.verb == "watch" or self.subresource == "log"


class Selection(Struct, frozen=True, kw_only=True):
    """The objects that a list and a watch select: one resource of a namespace."""

    resource: str
    namespace: str
    query: Query = ()
    name: str = ""  # set if only one object can match
    api_version: str = "v1"
    job_kind: str = ""  # the kind, if the resource is that of jobs

    def list_request(self) -> Request:
        """Return the request for all selected objects."""
        return self._request("list", self.query)

    def watch_request(self, resource_version: str) -> Request:
        """Return the request for every change after `resource_version`."""
        watch = (("watch", "true"), ("resourceVersion", resource_version), ("allowWatchBookmarks", "true"))
        return self._request("watch", (*self.query, *watch, ("timeoutSeconds", str(WATCH_SECONDS))))

    def _request(self, verb: str, query: Query) -> Request:
        where = {"api_version": self.api_version, "job_kind": self.job_kind}
        return _request("GET", verb, self.resource, self.namespace, query=query, **where)


def select_object(resource: str, namespace: str, name: str) -> Selection:
    """Select the object of a name."""
    return Selection(resource=resource, namespace=namespace, name=name, query=(("fieldSelector", f"metadata.name={name}"),))


def select_pods(selector: str, namespace: str) -> Selection:
    """Select the pods of a label selector."""
    return Selection(resource="pods", namespace=namespace, query=(("labelSelector", selector),))


def select_dependents(kind: JobKind, resource: str, namespace: str, job: str) -> Selection:
    """Select the pods, or other dependents, of a job."""
    return Selection(resource=resource, namespace=namespace, query=(("labelSelector", kind.select_pods(job)),))


def select_job(kind: JobKind, namespace: str, name: str) -> Selection:
    """Select the job of a name."""
    selection = select_object(kind.resource, namespace, name)
    return replace(selection, api_version=kind.api_version, job_kind=kind.name)


def select_prerequisites(kind: JobKind, namespace: str, job: str) -> list[Selection]:
    """Select the objects that must exist as long as a job."""
    selections = (select_object(resource, namespace, job) for resource in kind.prerequisites.values())
    return [replace(selection, api_version=kind.api_version) for selection in selections]


def select_jobs(kind: JobKind, namespace: str) -> Selection:
    """Select all jobs of a kind in a namespace; "" stands for all namespaces."""
    return Selection(resource=kind.resource, namespace=namespace, api_version=kind.api_version, job_kind=kind.name)


def get_job(kind: JobKind, namespace: str, name: str) -> Request:
    """Read one job."""
    return _request("GET", "get", **_locate_job(kind, namespace, name))


def get(resource: str, namespace: str, name: str) -> Request:
    """Read one object."""
    return _request("GET", "get", resource, namespace, name=name)


def execute(namespace: str, pod: str, container: str, command: Sequence[str], *, stdin: bool, terminal: bool) -> Request:
    """Run a command in a container; the response is a websocket. Kubernetes calls that `get`, and from 1.35 on `create` too."""
    streams = {"stdin": stdin, "stdout": True, "stderr": not terminal, "tty": terminal}
    query = (("container", container), *((name, "true") for name, is_open in streams.items() if is_open))
    request = _request("GET", "get", "pods", namespace, name=pod, query=(*query, *(("command", word) for word in command)))
    return replace(request, path=f"{request.path}/exec", subresource="exec")


def list_nodes() -> Request:
    """Read all nodes."""
    return Request(method="GET", path="/api/v1/nodes", verb="list", resource="nodes", namespace="")


def create(manifest: Mapping[str, Any], *, dry_run: bool = False) -> Request:
    """Create an object. The server rejects fields that it does not know; without that an old operator would ignore them.

    With `dry_run`, the server runs webhooks, quotas and schema validation, and stores nothing.
    """
    metadata = manifest["metadata"]
    query = (("fieldManager", api_objects.FIELD_MANAGER), ("fieldValidation", "Strict"), *(DRY_RUN if dry_run else ()))
    where = {**_locate(manifest), "name": ""}  # a create has the name in the body, not in the path
    return replace(_request("POST", "create", **where, query=query, body=manifest), name=metadata.get("name", ""))


def dry_run_replace(manifest: Mapping[str, Any], *, resource_version: str) -> Request:
    """Replace a job with `manifest` as a dry run: the server returns the result and stores nothing."""
    metadata = manifest["metadata"]
    query = (("fieldManager", api_objects.FIELD_MANAGER), ("fieldValidation", "Strict"), *DRY_RUN)
    body = {**manifest, "metadata": {**metadata, "resourceVersion": resource_version}}
    return _request("PUT", "update", **_locate(manifest), query=query, body=body)


def get_object(manifest: Mapping[str, Any]) -> Request:
    """Read the live object of a manifest."""
    return _request("GET", "get", **_locate(manifest))


def apply(manifest: Mapping[str, Any], *, dry_run: bool = False) -> Request:
    """Apply a manifest on the server; with `dry_run` the server returns the result and stores nothing."""
    force = ("force", "true")
    query = (("fieldManager", api_objects.FIELD_MANAGER), force, ("fieldValidation", "Strict"), *(DRY_RUN if dry_run else ()))
    return _request("PATCH", "patch", **_locate(manifest), query=query, body=manifest, content_type=APPLY_PATCH)


def replace_object(manifest: Mapping[str, Any]) -> Request:
    """Replace the live object of a manifest, if that still has the manifest's resource version."""
    return _request("PUT", "update", **_locate(manifest), body=manifest)


def delete_object(manifest: Mapping[str, Any]) -> Request:
    """Delete the object of a manifest; with a uid in the manifest, only the object with this uid."""
    return _request("DELETE", "delete", **_locate(manifest), body=_delete_options(manifest["metadata"].get("uid")))


def patch(manifest: Mapping[str, Any], operations: Sequence[Mapping[str, Any]]) -> Request:
    """Change the live object of a manifest by a JSON patch (RFC 6902)."""
    return _request("PATCH", "patch", **_locate(manifest), body=operations, content_type=JSON_PATCH)


def delete_job(kind: JobKind, namespace: str, name: str, uid: str) -> Request:
    """Delete the job of this uid; with `Foreground` it stays visible until everything that it owns is deleted."""
    body = _delete_options(uid, propagationPolicy=kind.deletion)
    return _request("DELETE", "delete", **_locate_job(kind, namespace, name), body=body)


def remove_pod(namespace: str, name: str, uid: str) -> Request:
    """Delete the pod of this uid at once, without waiting for its kubelet."""
    return _request("DELETE", "delete", "pods", namespace, name=name, body=_delete_options(uid, gracePeriodSeconds=0))


def _delete_options(uid: str | None, **options: Any) -> dict[str, Any]:
    """Return the body of a delete; with a uid, another object of the same name stays."""
    preconditions = {"preconditions": {"uid": uid}} if uid else {}
    return {"kind": "DeleteOptions", "apiVersion": "v1", **options, **preconditions}


def list_events(namespace: str, *, page: str = "") -> Request:
    """Read one page of the events of a namespace."""
    query = (("limit", str(EVENTS_PER_PAGE)), *((("continue", page),) if page else ()))
    return _request("GET", "list", "events", namespace, query=query)


def list_workloads(namespace: str, job_uid: str, api_version: str) -> Request:
    """Read the Kueue Workload of a job (v0.14 pkg/controller/constants: the label with the job's uid)."""
    query = (("labelSelector", f"{api_objects.LABEL_KUEUE_JOB_UID}={job_uid}"),)
    return _request("GET", "list", api_objects.KUEUE_WORKLOADS, namespace, api_version=api_version, query=query)


def list_pending_workloads(namespace: str, queue: str, api_version: str) -> Request:
    """Read which Workloads wait in a queue, and where, from Kueue's own API server (v0.14 apis/visibility)."""
    request = _request("GET", "get", api_objects.KUEUE_LOCAL_QUEUES, namespace, name=queue, api_version=api_version)
    subresource = "pendingworkloads"
    return replace(request, path=f"{request.path}/{subresource}", subresource=subresource, query=(("limit", str(MAX_PENDING)),))


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
    """Read a container's log with timestamps. `since` is in nanoseconds; the API server truncates it to seconds."""
    query = [("container", container), ("timestamps", "true")]
    if tail is not None:
        query.append(("tailLines", str(tail)))
    if since is not None:
        query.append(("sinceTime", datetime.fromtimestamp(since // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
    if previous:
        query.append(("previous", "true"))
    if follow:
        query.append(("follow", "true"))
    return _request("GET", "get", "pods", namespace, name=pod, subresource="log", query=tuple(query))


def api_path(api_version: str) -> str:
    """Return the path of an API version: `/api/v1`, `/apis/apps/v1`."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _locate(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return where the object of a manifest is, with its kind if it is a job."""
    metadata = manifest["metadata"]
    return {
        "resource": get_resource(manifest),
        "namespace": metadata["namespace"],
        "name": metadata.get("name", ""),
        "api_version": manifest["apiVersion"],
        "job_kind": manifest["kind"] if is_job(manifest) else "",
    }


def _locate_job(kind: JobKind, namespace: str, name: str) -> dict[str, str]:
    """Return where a job is."""
    return {
        "resource": kind.resource,
        "namespace": namespace,
        "name": name,
        "api_version": kind.api_version,
        "job_kind": kind.name,
    }


def _request(
    method: str,
    verb: str,
    resource: str,
    namespace: str,
    *,
    name: str = "",
    subresource: str = "",
    api_version: str = "v1",
    **more: Any,
) -> Request:
    place = ("namespaces", quote(namespace, safe="")) if namespace else ()
    parts = (api_path(api_version), *place, resource, quote(name, safe=""), subresource)
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
