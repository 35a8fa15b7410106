"""Texts that no environment variable, file or Kubernetes object can hold: with NUL, or with half of a surrogate pair."""

from __future__ import annotations

import re

IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
"""A character that makes a text impossible."""
NO_HOLDER = "no program, file or Kubernetes object can hold it"


def describe_impossible(character: str) -> str:
    """Return the name of the character for a message."""
    return "the character NUL" if character == "\0" else "half of a surrogate pair"
