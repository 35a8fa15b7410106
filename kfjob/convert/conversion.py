"""What an import comes to: the fields of a spec, and what could not be taken over as it was."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Note:
    """Something of the original that the spec does not say, or says in another way."""

    what: str  # as it stands in the original
    why: str

    def __str__(self) -> str:
        """One line."""
        return f"`{self.what}`: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A spec as plain data, not yet checked."""

    spec: dict[str, Any]
    notes: tuple[Note, ...] = ()


def job_name(text: str) -> str:
    """A name for a job, made of what there is: a file, a module, a title."""
    stem = re.sub(r"\.(py|sh|ya?ml)$", "", text.rstrip("/").rpartition("/")[2])
    words = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    return re.sub(r"^[^a-z]+", "", words)[:40].rstrip("-") or "job"
