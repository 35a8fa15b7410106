"""Which fields of a live object are kfjob's, by the API server's own book (`metadata.managedFields`). Pure.

A job is created, so that of two submitters one wins, and later changed by server-side applies. The server books a create under
`Update` and an apply under `Apply`, even of one manager, and an apply takes away only what an apply brought: a label that is
gone from the spec would stay. So the first apply takes the create's fields over, as client-go does it (util/csaupgrade).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from kfjob.backends.kubernetes.objects import Object
from kfjob.spec import api_objects

Operations = list[dict[str, Any]]


def owned_keys(live: Object, part: str) -> frozenset[str]:
    """The keys of `metadata.labels` or `metadata.annotations` that kfjob has set."""
    found: set[str] = set()
    for entry in _ours(live):
        keys = entry.get("fieldsV1", {}).get("f:metadata", {}).get(f"f:{part}", {})
        found |= {key.removeprefix("f:") for key in keys if key != "."}
    return frozenset(found)


def take_over_patch(live: Object) -> Operations:
    """The JSON patch that books what kfjob created as applied by it; empty if it is so already.

    It holds the version that was read, so that the server refuses it when the object has changed meanwhile.
    """
    created = [entry for entry in _ours(live) if entry.get("operation") == "Update"]
    if not created:
        return []
    applied = next((entry for entry in _ours(live) if entry.get("operation") == "Apply"), None)
    fields: dict[str, Any] = deepcopy(applied["fieldsV1"]) if applied else {}
    for entry in created:
        _add(fields, entry.get("fieldsV1") or {})
    ours = {**(applied or created[0]), "operation": "Apply", "fieldsV1": fields}
    others = [entry for entry in live["metadata"]["managedFields"] if entry not in _ours(live)]
    return [
        {"op": "replace", "path": "/metadata/managedFields", "value": [*others, ours]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
    ]


def _ours(live: Object) -> list[dict[str, Any]]:
    book = live["metadata"].get("managedFields") or []
    return [entry for entry in book if entry.get("manager") == api_objects.FIELD_MANAGER and not entry.get("subresource")]


def _add(fields: dict[str, Any], more: dict[str, Any]) -> None:
    for key, inner in more.items():
        _add(fields.setdefault(key, {}), inner)
