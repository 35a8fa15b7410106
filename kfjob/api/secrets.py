"""The secrets of a job, as its recorded spec or manifest shows them."""

from __future__ import annotations

from collections.abc import Iterable

from kfjob.base.common_types import JsonObject
from kfjob.base.parsing import ParseError, parse_json
from kfjob.joblog.diagnose.rule import Role, Severity
from kfjob.joblog.events import JobPhase, JobSnapshot, PodPhase
from kfjob.redaction import collect_secrets
from kfjob.redaction.structs import list_identifiers

_WORDS = frozenset({*JobPhase, *PodPhase, *Severity, *Role})
"""Words that kfjob prints about every job."""


def find_secrets(snapshot: JobSnapshot) -> frozenset[str]:
    """Return the values that are secrets by their names and shapes; none for a job that kfjob did not submit.

    A value that equals a name of the job or its pods, or the word for a state, is left out: replacing the word wherever kfjob
    prints it hides the state, and shows the secret. It is hidden only where its own name stands before it.
    """
    secrets: frozenset[str] = frozenset()
    for text in (snapshot.spec, snapshot.manifest):
        try:
            secrets |= collect_secrets(parse_json(text)) if text else frozenset()
        except ParseError:  # it was not written by kfjob
            continue
    return secrets - _WORDS - set(list_identifiers(snapshot))


def find_object_secrets(objects: Iterable[JsonObject]) -> frozenset[str]:
    """Return the same for the objects of a job to submit."""
    objects = list(objects)
    names = {item["metadata"].get("name", "") for item in objects}  # with a `generateName` it has no name before it is created
    return collect_secrets(objects) - _WORDS - names
