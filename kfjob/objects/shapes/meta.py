"""The fields that kfjob reads of the types of meta/v1 (apimachinery pkg/apis/meta/v1), and the scalars of all shapes."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Required, TypedDict, TypeVar

from msgspec import Meta

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import BackendError
from kfjob.objects.reading import Malformed

T = TypeVar("T")

Count = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
_NUMBER = r"^[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})"
Quantity = Annotated[str, Meta(pattern=_NUMBER + r"([eE][+-]?[0-9]{1,2}|[KMGTPE]i|[numkMGTPE])?$")] | Count
"""resource.Quantity of apimachinery."""
Texts = dict[str, str]


class OwnerReferenceShape(TypedDict, total=False):
    kind: str
    uid: str


class FieldsEntryShape(TypedDict, total=False):
    """The fields that one manager owns (`managedFields`)."""

    manager: str
    operation: str
    subresource: str
    fieldsV1: dict[str, dict[str, Any]] | None


class CommonMetadataShape(TypedDict, total=False):
    name: Required[str]
    resourceVersion: str
    labels: Texts | None
    annotations: Texts | None
    ownerReferences: list[OwnerReferenceShape] | None
    managedFields: list[FieldsEntryShape] | None
    creationTimestamp: str | None
    deletionTimestamp: str | None


class MetadataShape(CommonMetadataShape, total=False):
    namespace: str
    uid: str


class OwnMetadataShape(CommonMetadataShape, total=False):
    """The metadata of an object that kfjob tells apart from others of its name."""

    namespace: str
    uid: Required[str]


class NamespacedMetadataShape(CommonMetadataShape, total=False):
    namespace: Required[str]


class ConditionShape(TypedDict, total=False):
    type: str
    status: str
    reason: str | None
    message: str | None
    lastTransitionTime: str | None


class ObjectShape(TypedDict, total=False):
    metadata: Required[MetadataShape]


class OwnObjectShape(TypedDict, total=False):
    """An object that may belong to a job."""

    metadata: Required[OwnMetadataShape]


class ObjectStatusShape(TypedDict, total=False):
    """The status of an object that has a phase or conditions."""

    phase: str
    conditions: list[ConditionShape] | None


ListMetadataShape = TypedDict("ListMetadataShape", {"resourceVersion": str, "continue": str | None}, total=False)
"""`continue` is a keyword of Python, so this is no class."""


class ListShape(TypedDict, Generic[T], total=False):
    metadata: ListMetadataShape | None
    items: list[T] | None


class WatchEventShape(TypedDict):
    """`check_item` checks the object."""

    type: str
    object: JsonObject


MAX_VERSION = 1024
"""Characters of a resource version: it becomes a part of a URL, and Kubernetes' own have about ten."""


def read_version(item: JsonObject) -> str:
    """Return the resource version of an object or a list.

    Raises:
        BackendError: it has none, or one that no request can carry.
    """
    version = (item.get("metadata") or {}).get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise BackendError("the API server sent an object without a resource version")
    if len(version) > MAX_VERSION:
        raise Malformed(f"the API server sent a resource version of {len(version)} characters")
    return version
