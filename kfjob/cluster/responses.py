"""The shape of each resource's objects and lists: every response is checked against it where it arrives."""

from __future__ import annotations

from typing import Any

import msgspec

from kfjob.base.common_types import JsonObject
from kfjob.cluster.requests import Request
from kfjob.kinds.registry import KINDS
from kfjob.objects import api_objects
from kfjob.objects.shapes.apps import DeploymentShape
from kfjob.objects.shapes.core import (
    ClaimShape,
    DataShape,
    EventShape,
    NodeShape,
    PodShape,
    ResourceQuotaShape,
)
from kfjob.objects.shapes.kueue import LocalQueueShape, TopologyShape, WorkloadShape
from kfjob.objects.shapes.meta import ListShape, ObjectShape, OwnObjectShape
from kfjob.objects.shapes.server import AccessReviewShape, ApiResourcesShape, DefinitionShape, VersionShape

SHAPES: dict[str, tuple[Any, Any]] = {
    "pods": (PodShape, ListShape[PodShape]),
    "events": (EventShape, ListShape[EventShape]),
    api_objects.KUEUE_WORKLOADS: (WorkloadShape, ListShape[WorkloadShape]),
    api_objects.KUEUE_LOCAL_QUEUES: (LocalQueueShape, ListShape[LocalQueueShape]),
    api_objects.KUEUE_TOPOLOGIES: (TopologyShape, ListShape[TopologyShape]),
    "services": (OwnObjectShape, ListShape[OwnObjectShape]),
    "nodes": (NodeShape, ListShape[NodeShape]),
    "secrets": (DataShape, ListShape[DataShape]),
    "configmaps": (DataShape, ListShape[DataShape]),
    "resourcequotas": (ResourceQuotaShape, ListShape[ResourceQuotaShape]),
    "persistentvolumeclaims": (ClaimShape, ListShape[ClaimShape]),
    "selfsubjectaccessreviews": (AccessReviewShape, ListShape[AccessReviewShape]),
    "deployments": (DeploymentShape, ListShape[DeploymentShape]),
    "customresourcedefinitions": (DefinitionShape, ListShape[DefinitionShape]),
    "apis": (ApiResourcesShape, ListShape[ApiResourcesShape]),
    "version": (VersionShape, ListShape[VersionShape]),
}
"""The shapes of an object and of a list, by resource."""
_OTHER_SHAPES = (JsonObject, ListShape[ObjectShape])


def find_shape(request: Request) -> Any:
    """Return the shape of the response to a request."""
    if request.verb == "delete":  # the object, or a Status
        return JsonObject
    item, items = _find_shapes(request.resource)
    return items if request.verb == "list" else item


def check_item(resource: str, item: Any) -> None:
    """Check one object of a watch.

    Raises:
        msgspec.ValidationError: a field has another type, or a name is missing.
    """
    msgspec.convert(item, _find_shapes(resource)[0])


def _find_shapes(resource: str) -> tuple[Any, Any]:
    for kind in KINDS.values():
        if kind.resource == resource:
            lists: Any = ListShape
            return kind.shape, lists[kind.shape]
    return SHAPES.get(resource, _OTHER_SHAPES)
