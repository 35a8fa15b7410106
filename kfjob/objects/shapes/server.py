"""The fields that kfjob reads of apiextensions/v1, authorization/v1, the discovery lists and the server's version."""

from __future__ import annotations

from typing import Required, TypedDict

from kfjob.base.common_types import JsonObject


class DefinitionVersionShape(TypedDict, total=False):
    served: bool
    schema: JsonObject | None


class DefinitionSpecShape(TypedDict, total=False):
    versions: list[DefinitionVersionShape] | None


class DefinitionShape(TypedDict, total=False):
    spec: DefinitionSpecShape | None


class AccessReviewStatusShape(TypedDict, total=False):
    allowed: bool


class AccessReviewShape(TypedDict, total=False):
    status: AccessReviewStatusShape | None


class ApiResourceShape(TypedDict, total=False):
    name: Required[str]


class ApiResourcesShape(TypedDict, total=False):
    resources: list[ApiResourceShape] | None


class VersionShape(TypedDict, total=False):
    gitVersion: str
