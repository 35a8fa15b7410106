"""The types of the fields that kfjob reads of the API's objects. Every response is checked against them where it arrives.

So no other module meets a text where it expects a list. A field that an older or newer server leaves out counts as absent,
except for the names by which kfjob tells objects apart. Sources: core/v1, meta/v1, kubeflow.org/v1, Kueue v1beta1.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Required, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from kfjob.backends.kubernetes.requests import Request
from kfjob.common_types import JsonObject
from kfjob.errors import BackendError
from kfjob.spec import api_objects

T = TypeVar("T")

MAX_REPLICAS = 100_000
"""Pods of a job. etcd does not hold more."""

Count = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
Replicas = Annotated[int, Meta(ge=0, le=MAX_REPLICAS)]
Number = r"^[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})"
Quantity = Annotated[str, Meta(pattern=Number + r"([eE][+-]?[0-9]{1,2}|[KMGTPE]i|[numkMGTPE])?$")] | Count
"""resource.Quantity of apimachinery."""
Texts = dict[str, str]


class OwnerReference(TypedDict, total=False):
    """The object that owns another."""

    kind: str
    uid: str


class FieldsEntry(TypedDict, total=False):
    """The fields that one manager owns."""

    manager: str
    operation: str
    subresource: str
    fieldsV1: dict[str, dict[str, Any]] | None


class _CommonMetadata(TypedDict, total=False):
    name: Required[str]
    resourceVersion: str
    labels: Texts | None
    annotations: Texts | None
    ownerReferences: list[OwnerReference] | None
    managedFields: list[FieldsEntry] | None
    creationTimestamp: str | None
    deletionTimestamp: str | None


class Metadata(_CommonMetadata, total=False):
    """The metadata of an object."""

    namespace: str
    uid: str


class OwnMetadata(_CommonMetadata, total=False):
    """The metadata of an object that kfjob tells apart from others of its name."""

    namespace: str
    uid: Required[str]


class Condition(TypedDict, total=False):
    """A condition of an object."""

    type: str
    status: str
    reason: str | None
    message: str | None
    lastTransitionTime: str | None


class Object(TypedDict, total=False):
    """Any object."""

    metadata: Required[Metadata]


class OwnObject(TypedDict, total=False):
    """An object that may belong to a job."""

    metadata: Required[OwnMetadata]


class ContainerState(TypedDict, total=False):
    """One state of a container."""

    reason: str | None
    message: str | None
    exitCode: Count
    startedAt: str | None
    finishedAt: str | None
    containerID: str | None


class ContainerStates(TypedDict, total=False):
    """The state of a container: one of these."""

    waiting: ContainerState | None
    running: ContainerState | None
    terminated: ContainerState | None


class ContainerStatus(TypedDict, total=False):
    """The status of a container."""

    name: str
    state: ContainerStates | None
    lastState: ContainerStates | None
    restartCount: Count
    containerID: str | None


class Claim(TypedDict, total=False):
    """A volume's claim."""

    claimName: str | None


class Volume(TypedDict, total=False):
    """A volume of a pod."""

    persistentVolumeClaim: Claim | None


class Resources(TypedDict, total=False):
    """The resources of a container."""

    requests: dict[str, Quantity] | None
    limits: dict[str, Quantity] | None


class Container(TypedDict, total=False):
    """A container of a pod."""

    name: Required[str]
    image: str | None
    resources: Resources | None


class PodSpec(TypedDict, total=False):
    """The spec of a pod."""

    nodeName: str | None
    containers: list[Container] | None
    initContainers: list[Container] | None
    volumes: list[Volume] | None
    overhead: dict[str, Quantity] | None


class PodStatus(TypedDict, total=False):
    """The status of a pod."""

    phase: str | None
    reason: str | None
    message: str | None
    hostIP: str | None
    podIP: str | None
    conditions: list[Condition] | None
    containerStatuses: list[ContainerStatus] | None
    initContainerStatuses: list[ContainerStatus] | None


class Pod(TypedDict, total=False):
    """A pod."""

    metadata: Required[OwnMetadata]
    spec: PodSpec | None
    status: PodStatus | None


class PodTemplate(TypedDict, total=False):
    """A template of pods."""

    spec: PodSpec | None


class ReplicaSpec(TypedDict, total=False):
    """The replicas of one type."""

    replicas: Replicas
    template: PodTemplate | None


class ElasticPolicy(TypedDict, total=False):
    """The elastic policy of a job."""

    rdzvId: str


class JobSpec(TypedDict, total=False):
    """The spec of a job."""

    pytorchReplicaSpecs: dict[str, ReplicaSpec | None] | None
    elasticPolicy: ElasticPolicy | None


class JobStatus(TypedDict, total=False):
    """The status of a job."""

    conditions: list[Condition] | None
    startTime: str | None
    completionTime: str | None


class Job(TypedDict, total=False):
    """A PyTorchJob."""

    metadata: Required[OwnMetadata]
    spec: JobSpec | None
    status: JobStatus | None


class InvolvedObject(TypedDict, total=False):
    """The object that an event is about."""

    kind: str | None
    name: str | None
    uid: str | None


class Series(TypedDict, total=False):
    """The repetitions of an event."""

    count: Count | None
    lastObservedTime: str | None


class Source(TypedDict, total=False):
    """The component that recorded an event."""

    component: str | None


class EventMetadata(TypedDict, total=False):
    """The metadata of an event."""

    uid: str


class Event(TypedDict, total=False):
    """An event."""

    metadata: Required[EventMetadata]
    involvedObject: InvolvedObject | None
    series: Series | None
    source: Source | None
    reportingComponent: str | None
    reason: str | None
    message: str | None
    type: str | None
    count: Count | None
    firstTimestamp: str | None
    lastTimestamp: str | None
    eventTime: str | None


class WorkloadSpec(TypedDict, total=False):
    """The spec of a Workload."""

    queueName: str | None
    active: bool | None


class Admission(TypedDict, total=False):
    """The queue that admitted a Workload."""

    clusterQueue: str | None


class WorkloadState(TypedDict, total=False):
    """The status of a Workload."""

    conditions: list[Condition] | None
    admission: Admission | None


class Workload(TypedDict, total=False):
    """A Workload of Kueue."""

    metadata: Required[Metadata]
    spec: WorkloadSpec | None
    status: WorkloadState | None


class NodeInfo(TypedDict, total=False):
    """The system of a node."""

    architecture: str | None


class Taint(TypedDict, total=False):
    """A taint of a node."""

    key: Required[str]
    value: str | None
    effect: Required[str]


class NodeSpec(TypedDict, total=False):
    """The spec of a node."""

    taints: list[Taint] | None
    unschedulable: bool | None


class NodeStatus(TypedDict, total=False):
    """The status of a node."""

    conditions: list[Condition] | None
    allocatable: dict[str, Quantity] | None
    nodeInfo: NodeInfo | None


class Node(TypedDict, total=False):
    """A node."""

    metadata: Required[Metadata]
    spec: NodeSpec | None
    status: NodeStatus | None


class Data(TypedDict, total=False):
    """A secret or a config map."""

    metadata: Required[Metadata]
    data: Texts | None
    binaryData: Texts | None


class QuotaAmounts(TypedDict, total=False):
    """The limits of a quota, and what is used."""

    hard: dict[str, Quantity] | None
    used: dict[str, Quantity] | None


class Quota(TypedDict, total=False):
    """A resource quota."""

    metadata: Required[Metadata]
    spec: QuotaAmounts | None
    status: QuotaAmounts | None


class ClaimSpec(TypedDict, total=False):
    """The spec of a claim."""

    accessModes: list[str] | None


class ObjectStatus(TypedDict, total=False):
    """The status of an object that has a phase or conditions."""

    phase: str
    conditions: list[Condition] | None


class ClaimObject(TypedDict, total=False):
    """A claim of a volume."""

    metadata: Required[Metadata]
    spec: ClaimSpec | None
    status: ObjectStatus | None


class Queue(TypedDict, total=False):
    """A LocalQueue of Kueue."""

    metadata: Required[Metadata]
    status: ObjectStatus | None


class LimitItem(TypedDict, total=False):
    """One limit of a LimitRange."""

    type: str
    default: dict[str, Quantity] | None
    defaultRequest: dict[str, Quantity] | None


class Limits(TypedDict, total=False):
    """The limits of a LimitRange."""

    limits: list[LimitItem] | None


class LimitRange(TypedDict, total=False):
    """A LimitRange."""

    metadata: Required[Metadata]
    spec: Limits | None


ListMetadata = TypedDict("ListMetadata", {"resourceVersion": str, "continue": str | None}, total=False)
"""The metadata of a list. `continue` is a keyword of Python, so this is no class."""


class ItemList(TypedDict, Generic[T], total=False):
    """A list of objects."""

    metadata: ListMetadata | None
    items: list[T] | None


class WatchEvent(TypedDict):
    """An event of a watch. `check_item` checks its object."""

    type: str
    object: JsonObject


class Requirement(TypedDict, total=False):
    """A condition for the labels of a node."""

    key: Required[str]
    operator: Required[str]
    values: list[str] | None


class PoolNodeSpec(TypedDict, total=False):
    """The nodes of a node pool."""

    taints: list[Taint] | None
    requirements: list[Requirement] | None


class PoolLabels(TypedDict, total=False):
    """The metadata of the nodes of a node pool."""

    labels: Texts | None


class PoolTemplate(TypedDict, total=False):
    """The template of the nodes of a node pool."""

    metadata: PoolLabels | None
    spec: PoolNodeSpec | None


class PoolSpec(TypedDict, total=False):
    """The spec of a node pool."""

    template: PoolTemplate | None
    limits: dict[str, Quantity] | None


class PoolStatus(TypedDict, total=False):
    """The status of a node pool."""

    resources: dict[str, Quantity] | None


class Pool(TypedDict, total=False):
    """A node pool of Karpenter."""

    metadata: Required[Metadata]
    spec: PoolSpec | None
    status: PoolStatus | None


class NamespacedMetadata(_CommonMetadata, total=False):
    """The metadata of an object of any namespace."""

    namespace: Required[str]


class DeploymentSpec(TypedDict, total=False):
    """The spec of a Deployment."""

    replicas: Count | None
    template: PodTemplate | None


class DeploymentStatus(TypedDict, total=False):
    """The status of a Deployment."""

    readyReplicas: Count | None


class Deployment(TypedDict, total=False):
    """A Deployment."""

    metadata: Required[NamespacedMetadata]
    spec: DeploymentSpec | None
    status: DeploymentStatus | None


class DefinitionVersion(TypedDict, total=False):
    """A version of a custom resource."""

    served: bool
    schema: JsonObject | None


class DefinitionSpec(TypedDict, total=False):
    """The spec of a CustomResourceDefinition."""

    versions: list[DefinitionVersion] | None


class Definition(TypedDict, total=False):
    """A CustomResourceDefinition."""

    spec: DefinitionSpec | None


class ReviewStatus(TypedDict, total=False):
    """The answer to an access review."""

    allowed: bool


class Review(TypedDict, total=False):
    """An access review."""

    status: ReviewStatus | None


class ApiResource(TypedDict, total=False):
    """A resource that the server has."""

    name: Required[str]


class ApiResources(TypedDict, total=False):
    """The resources of an API version."""

    resources: list[ApiResource] | None


class Version(TypedDict, total=False):
    """The version of the server."""

    gitVersion: str


SHAPES: dict[str, tuple[Any, Any]] = {
    "pods": (Pod, ItemList[Pod]),
    api_objects.PYTORCHJOBS: (Job, ItemList[Job]),
    "events": (Event, ItemList[Event]),
    api_objects.KUEUE_WORKLOADS: (Workload, ItemList[Workload]),
    api_objects.KUEUE_LOCAL_QUEUES: (Queue, ItemList[Queue]),
    "services": (OwnObject, ItemList[OwnObject]),
    "nodes": (Node, ItemList[Node]),
    "secrets": (Data, ItemList[Data]),
    "configmaps": (Data, ItemList[Data]),
    "resourcequotas": (Quota, ItemList[Quota]),
    "limitranges": (LimitRange, ItemList[LimitRange]),
    "persistentvolumeclaims": (ClaimObject, ItemList[ClaimObject]),
    "selfsubjectaccessreviews": (Review, ItemList[Review]),
    "nodepools": (Pool, ItemList[Pool]),
    "deployments": (Deployment, ItemList[Deployment]),
    "customresourcedefinitions": (Definition, ItemList[Definition]),
    "apis": (ApiResources, ItemList[ApiResources]),
    "version": (Version, ItemList[Version]),
}
"""The shapes of an object and of a list, by resource."""
_OTHERS = (JsonObject, ItemList[Object])


def find_shape(request: Request) -> Any:
    """Return the shape of the response to a request."""
    if request.verb == "delete":  # the object, or a Status
        return JsonObject
    item, items = SHAPES.get(request.resource, _OTHERS)
    return items if request.verb == "list" else item


def check_item(resource: str, item: Any) -> None:
    """Check one object of a watch.

    Raises:
        msgspec.ValidationError: a field has another type, or a name is missing.
    """
    msgspec.convert(item, SHAPES.get(resource, _OTHERS)[0])


def read_version(item: JsonObject) -> str:
    """Return the resource version of an object or a list.

    Raises:
        BackendError: it has none.
    """
    version = (item.get("metadata") or {}).get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise BackendError("the API server sent an object without a resource version")
    return version
