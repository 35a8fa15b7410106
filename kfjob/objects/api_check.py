"""Check objects as the API server does, before they are sent: the types of their values, and the rules for values. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from kfjob.base.common_types import JsonObject
from kfjob.objects.api_objects import without_nulls
from kfjob.objects.api_rules import Fault, check_name, check_part
from kfjob.objects.kubernetes_schema import Part, find_type, walk
from kfjob.objects.names import DNS_1123, MAX_LABEL
from kfjob.validation.field_paths import Path, join_path


def find_object_faults(item: JsonObject) -> list[Fault]:
    """Return why the API server refuses an object; nothing for a kind that is not known here."""
    kind = find_type(item["apiVersion"], item["kind"])
    if kind is None:
        return []
    item = without_nulls(item)
    claims = _find_claims(item) if kind == "StatefulSet" else frozenset()
    return [*_find_name_faults(item), *find_faults(item, kind, claims=claims)]


def _find_claims(stateful_set: JsonObject) -> frozenset[str]:
    """Return the names of the volumes that a StatefulSet adds to its pods."""
    claims = (stateful_set.get("spec") or {}).get("volumeClaimTemplates") or ()
    return frozenset(str((claim.get("metadata") or {}).get("name")) for claim in claims)


def find_faults(value: Any, kind: str, path: Path = (), *, claims: Collection[str] = ()) -> list[Fault]:
    """Return what is wrong with a value of a type, which is at a path in its object.

    The rules for values need values of the right types, so they come second. `claims` are volumes that every pod has.
    """
    parts = list(walk(value, kind, path))
    types = [Fault(part.path, f"`{join_path(part.path)}` {part.message}") for part in parts if not isinstance(part, Part)]
    if types:
        return types
    return [
        fault._replace(path=(*part.path, *fault.path))
        for part in parts
        if isinstance(part, Part)
        for fault in check_part(part.type, part.value, claims)
    ]


def _find_name_faults(item: JsonObject) -> Iterator[Fault]:
    kind, metadata = item["kind"], item["metadata"]
    if "name" in metadata and (reason := check_name(kind, metadata["name"])):
        yield Fault(("metadata", "name"), f"`{metadata['name']}` cannot be the name of a {kind}: {reason}")
    yield from find_namespace_faults(metadata.get("namespace"))


def find_namespace_faults(namespace: str | None) -> Iterator[Fault]:
    """Yield why no namespace can have a name."""
    if namespace and (not DNS_1123.fullmatch(namespace) or len(namespace) > MAX_LABEL):
        reason = f"it may have at most {MAX_LABEL} lower-case letters, digits and `-`"
        yield Fault(("metadata", "namespace"), f"`{namespace}` cannot be the name of a namespace: {reason}")
