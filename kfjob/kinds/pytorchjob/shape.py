"""The fields that kfjob reads of a PyTorchJob of kubeflow.org/v1 (training operator pkg/apis/kubeflow.org/v1)."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from msgspec import Meta

from kfjob.objects.shapes.core import PodTemplateShape
from kfjob.objects.shapes.meta import ConditionShape, OwnMetadataShape

MAX_REPLICAS = 100_000
"""Pods of one job; etcd does not hold more."""

Replicas = Annotated[int, Meta(ge=0, le=MAX_REPLICAS)]


class ReplicaSpecShape(TypedDict, total=False):
    replicas: Replicas
    template: PodTemplateShape | None


class ElasticPolicyShape(TypedDict, total=False):
    rdzvId: str
    rdzvHost: str | None


class PyTorchJobSpecShape(TypedDict, total=False):
    pytorchReplicaSpecs: dict[str, ReplicaSpecShape | None] | None
    elasticPolicy: ElasticPolicyShape | None


class PyTorchJobStatusShape(TypedDict, total=False):
    conditions: list[ConditionShape] | None
    startTime: str | None
    completionTime: str | None


class PyTorchJobShape(TypedDict, total=False):
    metadata: Required[OwnMetadataShape]
    spec: PyTorchJobSpecShape | None
    status: PyTorchJobStatusShape | None
