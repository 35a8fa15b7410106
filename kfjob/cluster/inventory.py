"""Reads what a cluster has, for `doctor` and `preflight`."""

from __future__ import annotations

from collections.abc import Iterable

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.concurrency import map_parallel
from kfjob.base.errors import NotFound, Refused
from kfjob.cluster.client import Client
from kfjob.cluster.requests import DRY_RUN, Query, Request, api_path
from kfjob.objects import api_objects
from kfjob.objects.permissions import Permission

MAX_CONCURRENT_REQUESTS = 8
"""Concurrent requests of a check of the cluster."""
_ACCESS_REVIEWS = "selfsubjectaccessreviews"
_AUTHORIZATION = "authorization.k8s.io/v1"


class KubernetesInventory:
    """Implements `Inventory`: one cluster, and one namespace of it."""

    def __init__(self, client: Client, namespace: str) -> None:
        """`namespace` is the namespace of the jobs."""
        self._client = client
        self.namespace = namespace

    @property
    def host(self) -> str:
        """The API server's address, as messages name it."""
        return self._client.host

    def server_version(self) -> str:
        """Return the version of Kubernetes."""
        return str(self._read("/version", "version").get("gitVersion", ""))

    def list_resources(self, api_version: str) -> frozenset[str]:
        """Return the resources that the cluster serves for an API version; empty if it does not serve that version."""
        try:
            resources = self._read(api_path(api_version), "apis").get("resources") or ()
        except (NotFound, Refused):
            return frozenset()
        return frozenset(resource["name"] for resource in resources)

    def get_object(self, api_version: str, resource: str, name: str, *, namespaced: bool = True) -> JsonObject | None:
        """Return one object; None if it does not exist."""
        try:
            return self._read(f"{self._path(api_version, resource, namespaced=namespaced)}/{name}", resource, name=name)
        except NotFound:
            return None

    def list_objects(self, api_version: str, resource: str, *, namespaced: bool = True, labels: str = "") -> list[JsonObject]:
        """Return all objects of a resource."""
        query = (("labelSelector", labels),) if labels else ()
        response = self._read(self._path(api_version, resource, namespaced=namespaced), resource, verb="list", query=query)
        objects: list[JsonObject] = response.get("items") or []
        return objects

    def dry_run_create(self, api_version: str, resource: str, body: JsonMapping) -> JsonObject:
        """Return the object as the API server would store it; nothing is stored."""
        query = (*DRY_RUN, ("fieldManager", api_objects.FIELD_MANAGER))
        name = str(body["metadata"].get("name", ""))
        return self._post(self._path(api_version, resource, namespaced=True), resource, body, name=name, query=query)

    def find_missing_permissions(self, permissions: Iterable[Permission]) -> list[Permission]:
        """Return the permissions that the user does not have."""
        reviewed = list(permissions)
        answers = map_parallel(self._is_allowed, reviewed, threads=MAX_CONCURRENT_REQUESTS, name="permissions")
        return [permission for permission, allowed in zip(reviewed, answers, strict=True) if not allowed]

    def _is_allowed(self, permission: Permission) -> bool:
        attributes = {
            "namespace": self.namespace,
            "verb": permission.verb,
            "group": permission.group,
            "resource": permission.resource,
        }
        if permission.subresource:
            attributes["subresource"] = permission.subresource
        body = {
            "apiVersion": _AUTHORIZATION,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        response = self._post(f"{api_path(_AUTHORIZATION)}/{_ACCESS_REVIEWS}", _ACCESS_REVIEWS, body)
        return bool((response.get("status") or {}).get("allowed"))

    def _path(self, api_version: str, resource: str, *, namespaced: bool) -> str:
        scope = f"namespaces/{self.namespace}/" if namespaced else ""
        return f"{api_path(api_version)}/{scope}{resource}"

    def _read(self, path: str, resource: str, *, verb: str = "get", name: str = "", query: Query = ()) -> JsonObject:
        request = Request(
            method="GET", path=path, verb=verb, resource=resource, namespace=self.namespace, name=name, query=query
        )
        return self._client.call(request)

    def _post(self, path: str, resource: str, body: JsonMapping, *, name: str = "", query: Query = ()) -> JsonObject:
        request = Request(
            method="POST",
            path=path,
            verb="create",
            resource=resource,
            namespace=self.namespace,
            name=name,
            query=query,
            body=body,
        )
        return self._client.call(request)
