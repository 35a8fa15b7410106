"""Which fields of a live object kfjob owns, by the API server's record (`metadata.managedFields`). Pure.

kfjob creates a job, so that of two submitters one wins, and changes it later by server-side applies. The server records a
create as `Update` and an apply as `Apply`, even for one manager, and an apply removes only fields of an apply: a label that a
spec no longer has would stay. So the first apply takes over the fields of the create, as client-go does (util/csaupgrade).
"""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.objects import api_objects
from kfjob.objects.shapes.meta import read_version

Operations = list[JsonObject]
"""A JSON patch (RFC 6902)."""


def owned_keys(live: JsonObject, part: str) -> frozenset[str]:
    """Return the keys of `metadata.labels` or `metadata.annotations` that kfjob has set."""
    owned: set[str] = set()
    for entry in _own_entries(live):
        keys = (entry.get("fieldsV1") or {}).get("f:metadata", {}).get(f"f:{part}") or {}
        owned |= {key.removeprefix("f:") for key in keys if key != "."}
    return frozenset(owned)


def list_owned(live: JsonObject) -> list[tuple[str, ...]]:
    """Return the paths of all fields that kfjob has set, a mapping before its fields; items of lists are left out."""
    fields: JsonObject = {}
    for entry in _own_entries(live):
        fields = _merge_fields(fields, entry.get("fieldsV1") or {})
    return [path for path in _list_paths(fields, ()) if path[0] != "metadata" or path[1:2] in (("labels",), ("annotations",))]


def _list_paths(fields: JsonMapping, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, value in fields.items():
        if key.startswith("f:"):
            yield (*path, key[2:])
            yield from _list_paths(value or {}, (*path, key[2:]))


def take_over_patch(live: JsonObject) -> Operations:
    """Return the patch that turns kfjob's create into an apply; empty if there is nothing to take over.

    It contains the resource version read before, so the server rejects it if the object has changed since.
    """
    created = [entry for entry in _own_entries(live) if entry.get("operation") == "Update"]
    if not created:
        return []
    applied = next((entry for entry in _own_entries(live) if entry.get("operation") == "Apply"), None)
    fields: JsonObject = (applied and applied.get("fieldsV1")) or {}
    for entry in created:
        fields = _merge_fields(fields, entry.get("fieldsV1") or {})
    own = {**(applied or created[0]), "operation": "Apply", "fieldsV1": fields}
    foreign = [entry for entry in live["metadata"]["managedFields"] if entry not in _own_entries(live)]
    return [
        {"op": "replace", "path": "/metadata/managedFields", "value": [*foreign, own]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": read_version(live)},
    ]


def _own_entries(live: JsonObject) -> list[JsonObject]:
    entries = live["metadata"].get("managedFields") or []
    return [one for one in entries if one.get("manager") == api_objects.FIELD_MANAGER and not one.get("subresource")]


def _merge_fields(fields: JsonMapping, more: JsonMapping) -> JsonObject:
    """Return the union of two trees of field names."""
    return {key: _merge_fields(fields.get(key) or {}, more.get(key) or {}) for key in dict.fromkeys([*fields, *more])}
