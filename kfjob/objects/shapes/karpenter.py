"""The fields that kfjob reads of a NodePool of karpenter.sh/v1 (karpenter pkg/apis/v1)."""

from __future__ import annotations

from typing import Required, TypedDict

from kfjob.objects.shapes.core import TaintShape
from kfjob.objects.shapes.meta import MetadataShape, Quantity, Texts


class NodeRequirementShape(TypedDict, total=False):
    key: Required[str]
    operator: Required[str]
    values: list[str] | None


class NodePoolNodeShape(TypedDict, total=False):
    taints: list[TaintShape] | None
    requirements: list[NodeRequirementShape] | None


class NodePoolLabelsShape(TypedDict, total=False):
    labels: Texts | None


class NodePoolTemplateShape(TypedDict, total=False):
    metadata: NodePoolLabelsShape | None
    spec: NodePoolNodeShape | None


class NodePoolSpecShape(TypedDict, total=False):
    template: NodePoolTemplateShape | None
    limits: dict[str, Quantity] | None


class NodePoolStatusShape(TypedDict, total=False):
    resources: dict[str, Quantity] | None


class NodePoolShape(TypedDict, total=False):
    metadata: Required[MetadataShape]
    spec: NodePoolSpecShape | None
    status: NodePoolStatusShape | None
