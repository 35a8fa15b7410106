"""The rights of a role in `manifests/rbac`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kfjob.objects.permissions import Permission

MANIFESTS = Path(__file__).parents[1] / "manifests"


def read_role(name: str) -> dict[str, Any]:
    """Return the Role of a file in `manifests/rbac`."""
    documents: list[dict[str, Any]] = list(yaml.safe_load_all((MANIFESTS / "rbac" / f"{name}.yaml").read_text()))
    return next(document for document in documents if document["kind"] == "Role")


def list_rights(role: dict[str, Any]) -> set[Permission]:
    """Return each right of a role."""
    return {
        Permission(verb=verb, resource=resource, group=group, subresource=subresource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource, _, subresource in (name.partition("/") for name in rule["resources"])
        for verb in rule["verbs"]
    }


def leave_out(role: dict[str, Any], resource: str, verb: str) -> dict[str, Any]:
    """Return the role without one right."""
    rules = [
        {
            "apiGroups": [right.group],
            "resources": [f"{right.resource}/{right.subresource}".rstrip("/")],
            "verbs": [right.verb],
        }
        for right in sorted(list_rights(role), key=str)
        if (right.full_resource, right.verb) != (resource, verb)
    ]
    return {**role, "rules": rules}
