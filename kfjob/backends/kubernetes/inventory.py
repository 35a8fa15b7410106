"""What a cluster is and has, read for `doctor` and `preflight`: nothing here belongs to a job.

Who asks may lack the right to see a thing (nodes and CRDs are the administrators'): `Forbidden` is an answer like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from kfjob.backends.kubernetes.client import Client
from kfjob.backends.kubernetes.requests import Request
from kfjob.errors import NotFound, Refused
from kfjob.spec import api_objects

CORE = "/api/v1"
APPS = "/apis/apps/v1"
CRDS = "/apis/apiextensions.k8s.io/v1"
JOBS = f"/apis/{api_objects.PYTORCHJOB_API_VERSION}"
KUEUE = f"/apis/{api_objects.KUEUE_API_VERSION}"
SCHEDULING = f"/apis/{api_objects.SCHEDULING_API_VERSION}"
AT_ONCE = 8
"""Questions that are open at the same time."""

Object = dict[str, Any]


class Right(Struct, frozen=True, kw_only=True):
    """One verb on one resource of a namespace."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""

    @property
    def what(self) -> str:
        """`pytorchjobs.kubeflow.org/scale`."""
        group, part = f".{self.group}" if self.group else "", f"/{self.subresource}" if self.subresource else ""
        return f"{self.resource}{group}{part}"


class Inventory:
    """One cluster and one namespace of it, asked."""

    def __init__(self, client: Client, namespace: str) -> None:
        """`namespace` is that of the jobs."""
        self._client = client
        self.namespace = namespace

    @property
    def host(self) -> str:
        """The API server, as messages call it."""
        return self._client.host

    def version(self) -> str:
        """Of Kubernetes: `v1.34.4`. The first thing to ask: does anybody answer?"""
        return str(self._read("/version", "version").get("gitVersion", ""))

    def served(self, group: str) -> frozenset[str]:
        """The resources of an API group's version, empty if the cluster does not have it."""
        try:
            return frozenset(one["name"] for one in self._read(group, "apis").get("resources") or ())
        except (NotFound, Refused):
            return frozenset()

    def get(self, group: str, resource: str, name: str, *, namespaced: bool = True) -> Object | None:
        """One object, None if there is none.

        Raises:
            Forbidden: it cannot be seen.
        """
        try:
            return self._read(self._path(group, resource, namespaced, name), resource, name=name)
        except NotFound:
            return None

    def all(self, group: str, resource: str, *, namespaced: bool = True, labels: str = "") -> list[Object]:
        """All objects of a kind.

        Raises:
            Forbidden: they cannot be seen.
        """
        query = (("labelSelector", labels),) if labels else ()
        answer = self._read(self._path(group, resource, namespaced), resource, verb="list", query=query)
        found: list[Object] = answer.get("items") or []
        return found

    def dry_create(self, group: str, resource: str, body: Mapping[str, Any]) -> Object:
        """What the API server, its admission and its webhooks make of an object; it keeps nothing.

        Raises:
            Refused, Forbidden, AlreadyExists: they would not take it.
        """
        query = (("dryRun", "All"), ("fieldManager", api_objects.FIELD_MANAGER))
        return self._client.call(
            Request(
                method="POST",
                path=self._path(group, resource, namespaced=True),
                verb="create",
                resource=resource,
                namespace=self.namespace,
                name=str(body["metadata"].get("name", "")),
                query=query,
                body=body,
            )
        )

    def missing(self, rights: Iterable[Right]) -> list[Right]:
        """Those of `rights` that we do not have, by a SelfSubjectAccessReview each."""
        wanted = list(rights)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [right for right, allowed in zip(wanted, pool.map(self._allowed, wanted), strict=True) if not allowed]

    def _allowed(self, right: Right) -> bool:
        asked = {"namespace": self.namespace, "verb": right.verb, "group": right.group, "resource": right.resource}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked | ({"subresource": right.subresource} if right.subresource else {})},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self._client.call(
            Request(
                method="POST",
                path=path,
                verb="create",
                resource="selfsubjectaccessreviews",
                namespace=self.namespace,
                body=body,
            )
        )
        return bool((answer.get("status") or {}).get("allowed"))

    def _path(self, group: str, resource: str, namespaced: bool, name: str = "") -> str:  # noqa: FBT001 - of this class alone
        within = f"namespaces/{self.namespace}/" if namespaced else ""
        return f"{group}/{within}{resource}{f'/{name}' if name else ''}"

    def _read(self, path: str, resource: str, *, verb: str = "get", name: str = "", query: Any = ()) -> Object:
        request = Request(
            method="GET", path=path, verb=verb, resource=resource, namespace=self.namespace, name=name, query=query
        )
        return self._client.call(request)
