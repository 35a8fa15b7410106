"""The result of a conversion: the fields of a spec, and notes about the parts that differ from the original."""

from __future__ import annotations

import re

from msgspec import Struct

from kfjob.base.common_types import JsonObject

NEW_ID_REASON = (
    "left out: kfjob creates one for each launch, so that a relaunch never joins the rendezvous of an earlier launch"
)
"""The reason why a spec omits the rendezvous id of the original."""


class Note(Struct, frozen=True, kw_only=True):
    """A part of the original that the spec does not hold, or holds in another form."""

    item: str
    """The part as the original writes it."""
    reason: str

    def __str__(self) -> str:
        """Return the note as one line."""
        return f"`{self.item}`: {self.reason}"


class Conversion(Struct, frozen=True, kw_only=True):
    """A spec as plain data without validation, and notes for the user."""

    spec: JsonObject
    notes: tuple[Note, ...] = ()
    additions: tuple[Note, ...] = ()
    """What kfjob adds to every job; a user needs the list once, and not at every import."""


def make_job_name(text: str) -> str:
    """Return a job name for a file, a module or a title."""
    stem = re.sub(r"\.(py|sh|ya?ml)$", "", text.rstrip("/").rpartition("/")[2])
    words = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    return re.sub(r"^[^a-z]+", "", words)[:40].rstrip("-") or "job"
