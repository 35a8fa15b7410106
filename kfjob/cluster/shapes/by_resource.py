"""The shape of each resource's objects and lists: every response is checked against it where it arrives."""

from __future__ import annotations

from typing import Any

import msgspec

from kfjob.base.common_types import JsonObject
from kfjob.cluster.requests import Request
from kfjob.cluster.shapes.apps import DeploymentShape
from kfjob.cluster.shapes.core import (
    ClaimShape,
    DataShape,
    EventShape,
    LimitRangeShape,
    NodeShape,
    PodShape,
    ResourceQuotaShape,
)
from kfjob.cluster.shapes.karpenter import NodePoolShape
from kfjob.cluster.shapes.kubeflow import PyTorchJobShape
from kfjob.cluster.shapes.kueue import LocalQueueShape, WorkloadShape
from kfjob.cluster.shapes.meta import ListShape, ObjectShape, OwnObjectShape
from kfjob.cluster.shapes.server import AccessReviewShape, ApiResourcesShape, DefinitionShape, VersionShape
from kfjob.objects import api_objects

SHAPES: dict[str, tuple[Any, Any]] = {
    "pods": (PodShape, ListShape[PodShape]),
    api_objects.PYTORCHJOBS: (PyTorchJobShape, ListShape[PyTorchJobShape]),
    "events": (EventShape, ListShape[EventShape]),
    api_objects.KUEUE_WORKLOADS: (WorkloadShape, ListShape[WorkloadShape]),
    api_objects.KUEUE_LOCAL_QUEUES: (LocalQueueShape, ListShape[LocalQueueShape]),
    "services": (OwnObjectShape, ListShape[OwnObjectShape]),
    "nodes": (NodeShape, ListShape[NodeShape]),
    "secrets": (DataShape, ListShape[DataShape]),
    "configmaps": (DataShape, ListShape[DataShape]),
    "resourcequotas": (ResourceQuotaShape, ListShape[ResourceQuotaShape]),
    "limitranges": (LimitRangeShape, ListShape[LimitRangeShape]),
    "persistentvolumeclaims": (ClaimShape, ListShape[ClaimShape]),
    "selfsubjectaccessreviews": (AccessReviewShape, ListShape[AccessReviewShape]),
    "nodepools": (NodePoolShape, ListShape[NodePoolShape]),
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
    item, items = SHAPES.get(request.resource, _OTHER_SHAPES)
    return items if request.verb == "list" else item


def check_item(resource: str, item: Any) -> None:
    """Check one object of a watch.

    Raises:
        msgspec.ValidationError: a field has another type, or a name is missing.
    """
    msgspec.convert(item, SHAPES.get(resource, _OTHER_SHAPES)[0])
