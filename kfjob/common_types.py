"""Type aliases that several packages use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

JsonObject = dict[str, Any]
"""A JSON object: a Kubernetes manifest, or a part of one."""
JsonMapping = Mapping[str, Any]
"""A JSON object that is only read."""
Notify = Callable[[str], None]
"""Receives a message for the user; the CLI prints it to stderr."""


def ignore_notice(_message: str) -> None:
    """Drop the message: the default of `notify` parameters in the Python API."""
