"""The secrets of a job, as its recorded spec or manifest shows them."""

from __future__ import annotations

import json

from kfjob.events import JobSnapshot
from kfjob.redaction import collect_secrets


def find_secrets(snapshot: JobSnapshot) -> frozenset[str]:
    """Return the values that are secrets by their names and shapes; none for a job that kfjob did not submit."""
    secrets: frozenset[str] = frozenset()
    for text in (snapshot.spec, snapshot.manifest):
        try:
            secrets |= collect_secrets(json.loads(text)) if text else frozenset()
        except (ValueError, RecursionError):  # it was not written by kfjob
            continue
    return secrets
