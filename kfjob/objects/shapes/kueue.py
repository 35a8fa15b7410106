"""The fields that kfjob reads of a Workload, a LocalQueue and a Topology of Kueue (apis/kueue and apis/visibility)."""

from __future__ import annotations

from typing import Required, TypedDict

from kfjob.objects.shapes.meta import ConditionShape, MetadataShape, ObjectStatusShape


class WorkloadSpecShape(TypedDict, total=False):
    queueName: str | None
    active: bool | None


class AdmissionShape(TypedDict, total=False):
    clusterQueue: str | None


class WorkloadStatusShape(TypedDict, total=False):
    conditions: list[ConditionShape] | None
    admission: AdmissionShape | None
    clusterName: str | None


class WorkloadShape(TypedDict, total=False):
    metadata: Required[MetadataShape]
    spec: WorkloadSpecShape | None
    status: WorkloadStatusShape | None


class PendingWorkloadShape(TypedDict, total=False):
    metadata: Required[MetadataShape]
    positionInClusterQueue: int | None


class PendingWorkloadsShape(TypedDict, total=False):
    items: list[PendingWorkloadShape] | None


class LocalQueueShape(TypedDict, total=False):
    metadata: Required[MetadataShape]
    status: ObjectStatusShape | None


class TopologyLevelShape(TypedDict, total=False):
    nodeLabel: str | None


class TopologySpecShape(TypedDict, total=False):
    levels: list[TopologyLevelShape] | None


class TopologyShape(TypedDict, total=False):
    metadata: Required[MetadataShape]
    spec: TopologySpecShape | None
