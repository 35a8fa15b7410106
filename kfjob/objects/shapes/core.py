"""The fields that kfjob reads of the types of core/v1 (k8s.io/api/core/v1)."""

from __future__ import annotations

from typing import Required, TypedDict

from kfjob.objects.shapes.meta import (
    ConditionShape,
    Count,
    MetadataShape,
    ObjectStatusShape,
    OwnMetadataShape,
    Quantity,
    Texts,
)


class ContainerStateShape(TypedDict, total=False):
    reason: str | None
    message: str | None
    exitCode: Count
    startedAt: str | None
    finishedAt: str | None
    containerID: str | None


class ContainerStatesShape(TypedDict, total=False):
    """At most one of the three is present."""

    waiting: ContainerStateShape | None
    running: ContainerStateShape | None
    terminated: ContainerStateShape | None


class ContainerStatusShape(TypedDict, total=False):
    name: str
    state: ContainerStatesShape | None
    lastState: ContainerStatesShape | None
    restartCount: Count
    containerID: str | None


class ClaimSourceShape(TypedDict, total=False):
    claimName: str | None


class VolumeShape(TypedDict, total=False):
    persistentVolumeClaim: ClaimSourceShape | None


class ResourcesShape(TypedDict, total=False):
    requests: dict[str, Quantity] | None
    limits: dict[str, Quantity] | None


class ContainerShape(TypedDict, total=False):
    name: Required[str]
    image: str | None
    resources: ResourcesShape | None


class PodSpecShape(TypedDict, total=False):
    nodeName: str | None
    containers: list[ContainerShape] | None
    initContainers: list[ContainerShape] | None
    volumes: list[VolumeShape] | None
    overhead: dict[str, Quantity] | None


class PodStatusShape(TypedDict, total=False):
    phase: str | None
    reason: str | None
    message: str | None
    hostIP: str | None
    podIP: str | None
    conditions: list[ConditionShape] | None
    containerStatuses: list[ContainerStatusShape] | None
    initContainerStatuses: list[ContainerStatusShape] | None


class PodShape(TypedDict, total=False):
    metadata: Required[OwnMetadataShape]
    spec: PodSpecShape | None
    status: PodStatusShape | None


class PodTemplateShape(TypedDict, total=False):
    spec: PodSpecShape | None


class InvolvedObjectShape(TypedDict, total=False):
    kind: str | None
    name: str | None
    uid: str | None


class EventSeriesShape(TypedDict, total=False):
    count: Count | None
    lastObservedTime: str | None


class EventSourceShape(TypedDict, total=False):
    component: str | None


class EventMetadataShape(TypedDict, total=False):
    uid: str


class EventShape(TypedDict, total=False):
    metadata: Required[EventMetadataShape]
    involvedObject: InvolvedObjectShape | None
    series: EventSeriesShape | None
    source: EventSourceShape | None
    reportingComponent: str | None
    reason: str | None
    message: str | None
    type: str | None
    count: Count | None
    firstTimestamp: str | None
    lastTimestamp: str | None
    eventTime: str | None


class NodeInfoShape(TypedDict, total=False):
    architecture: str | None


class TaintShape(TypedDict, total=False):
    key: Required[str]
    value: str | None
    effect: Required[str]


class NodeSpecShape(TypedDict, total=False):
    taints: list[TaintShape] | None
    unschedulable: bool | None


class NodeStatusShape(TypedDict, total=False):
    conditions: list[ConditionShape] | None
    allocatable: dict[str, Quantity] | None
    nodeInfo: NodeInfoShape | None


class NodeShape(TypedDict, total=False):
    metadata: Required[MetadataShape]
    spec: NodeSpecShape | None
    status: NodeStatusShape | None


class DataShape(TypedDict, total=False):
    """A Secret or a ConfigMap."""

    metadata: Required[MetadataShape]
    data: Texts | None
    binaryData: Texts | None


class QuotaAmountsShape(TypedDict, total=False):
    hard: dict[str, Quantity] | None
    used: dict[str, Quantity] | None


class ResourceQuotaShape(TypedDict, total=False):
    metadata: Required[MetadataShape]
    spec: QuotaAmountsShape | None
    status: QuotaAmountsShape | None


class ClaimSpecShape(TypedDict, total=False):
    accessModes: list[str] | None


class ClaimShape(TypedDict, total=False):
    metadata: Required[MetadataShape]
    spec: ClaimSpecShape | None
    status: ObjectStatusShape | None
