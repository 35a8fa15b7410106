"""The fields that kfjob reads of a Deployment of apps/v1 (k8s.io/api/apps/v1)."""

from __future__ import annotations

from typing import Required, TypedDict

from kfjob.objects.shapes.core import PodTemplateShape
from kfjob.objects.shapes.meta import Count, NamespacedMetadataShape


class DeploymentSpecShape(TypedDict, total=False):
    replicas: Count | None
    template: PodTemplateShape | None


class DeploymentStatusShape(TypedDict, total=False):
    readyReplicas: Count | None


class DeploymentShape(TypedDict, total=False):
    metadata: Required[NamespacedMetadataShape]
    spec: DeploymentSpecShape | None
    status: DeploymentStatusShape | None
