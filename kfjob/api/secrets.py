"""The secrets of a job, as its recorded spec or manifest shows them."""

from __future__ import annotations

from kfjob.events import JobSnapshot
from kfjob.parsing import ParseError, parse_json
from kfjob.redaction import collect_secrets


def find_secrets(snapshot: JobSnapshot) -> frozenset[str]:
    """Return the values that are secrets by their names and shapes; none for a job that kfjob did not submit."""
    secrets: frozenset[str] = frozenset()
    for text in (snapshot.spec, snapshot.manifest):
        try:
            secrets |= collect_secrets(parse_json(text)) if text else frozenset()
        except ParseError:  # it was not written by kfjob
            continue
    return secrets
