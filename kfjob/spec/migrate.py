"""Specs of other schema versions: older ones are brought up to date, newer ones are refused with what is needed.

A spec without `version` is one of this version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kfjob.errors import Problem, SpecError
from kfjob.spec.job import SPEC_VERSION

Data = dict[str, Any]

STEPS: Mapping[int, Callable[[Data], Data]] = {}
"""What turns a spec of a version into one of the next. Version 1 is the first, so there is nothing to do yet."""


def migrate(data: Data, *, current: int = SPEC_VERSION, steps: Mapping[int, Callable[[Data], Data]] = STEPS) -> Data:
    """The spec in the words of the `current` version.

    Raises:
        SpecError: it is of a newer version, or of one that never was.
    """
    version = data.get("version", current)
    if not isinstance(version, int) or isinstance(version, bool):
        return data  # the field's own check says what is wrong
    if version > current:
        title = f"this spec is of schema version {version}, and this kfjob knows versions up to {current}"
        hint = f"install a kfjob that knows schema version {version}"
        raise SpecError([Problem(title=title, path="version", hint=hint)])
    while version < current:
        if version not in steps:
            title = f"there is no schema version {version}"
            raise SpecError([Problem(title=title, path="version", hint=f"the current one is {current}")])
        data = {**steps[version](data), "version": version + 1}
        version += 1
    return data
