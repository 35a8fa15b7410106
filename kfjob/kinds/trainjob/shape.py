"""The fields that kfjob reads of a TrainJob of trainer.kubeflow.org/v1alpha1 (Trainer v2.3, pkg/apis/trainer/v1alpha1)."""

from __future__ import annotations

from typing import Annotated, Any, Required, TypedDict

from msgspec import Meta

from kfjob.objects.shapes.meta import ConditionShape, OwnMetadataShape

Count = Annotated[int, Meta(ge=0)]
Nodes = Annotated[int, Meta(ge=0, le=100_000)]


class TrainerShape(TypedDict, total=False):
    image: str | None
    command: list[str] | None
    args: list[str] | None
    env: list[dict[str, Any]] | None
    numNodes: Nodes | None


class TrainJobSpecShape(TypedDict, total=False):
    trainer: TrainerShape | None
    suspend: bool | None


class JobStatusShape(TypedDict, total=False):
    name: Required[str]
    ready: Count | None
    succeeded: Count | None
    failed: Count | None
    active: Count | None
    suspended: Count | None


class TrainJobStatusShape(TypedDict, total=False):
    conditions: list[ConditionShape] | None
    jobsStatus: list[JobStatusShape] | None


class TrainJobShape(TypedDict, total=False):
    metadata: Required[OwnMetadataShape]
    spec: TrainJobSpecShape | None
    status: TrainJobStatusShape | None
