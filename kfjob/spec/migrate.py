"""Migrate specs of older schema versions, and reject newer ones. A spec without `version` has the current version."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.spec.job import SPEC_VERSION

STEPS: Mapping[int, Callable[[JsonObject], JsonObject]] = {}
"""The function that converts a spec of each version to the next one. Version 1 is the first, so there is no step yet."""


def migrate(
    data: JsonObject, *, current: int = SPEC_VERSION, steps: Mapping[int, Callable[[JsonObject], JsonObject]] = STEPS
) -> JsonObject:
    """Return the spec in the schema of the `current` version.

    Raises:
        SpecError: the version is newer than `current`, or does not exist.
    """
    version = data.get("version", current)
    if not isinstance(version, int) or isinstance(version, bool):
        return data  # the validation of the field reports this
    if version > current:
        title = f"the spec has schema version {version}, but this kfjob supports versions up to {current}"
        hint = f"install a kfjob that supports schema version {version}"
        raise SpecError([Problem(title=title, path="version", hint=hint)])
    while version < current:
        if version not in steps:
            title = f"schema version {version} does not exist"
            raise SpecError([Problem(title=title, path="version", hint=f"the current version is {current}")])
        data = {**steps[version](data), "version": version + 1}
        version += 1
    return data
