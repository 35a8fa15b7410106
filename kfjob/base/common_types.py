"""Type aliases that several packages use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

JsonObject = dict[str, Any]
"""A JSON object: a Kubernetes manifest, or a part of one."""
JsonMapping = Mapping[str, Any]
"""A JSON object that is only read."""
IDENTIFIER = "identifier"
Identifier = Annotated[str, IDENTIFIER]
"""A name by which kfjob finds something: a rule, a pod, a container, a reason that a controller gives. It is no free text."""
Notify = Callable[[str], None]
"""Receives a message for the user; the CLI prints it to stderr."""


class TextEnum(StrEnum):
    """Words that read as text everywhere: a shell shows `job.phase` as `'Running'`, and JSON has the same word."""

    __repr__ = str.__repr__


def ignore_notice(_message: str) -> None:
    """Drop the message: the default of `notify` parameters in the Python API."""
