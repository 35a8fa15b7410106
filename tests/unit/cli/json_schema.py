"""A validator for the part of JSON Schema that the schema of a spec uses."""

from __future__ import annotations

from typing import Any

KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
}


def accepts(value: Any, rule: dict[str, Any], root: dict[str, Any]) -> bool:
    """Return whether `value` satisfies `rule`, a part of the schema `root`."""
    if "$ref" in rule:
        return accepts(value, root["$defs"][rule["$ref"].rpartition("/")[2]], root)
    alternatives = [rule[name] for name in ("anyOf", "oneOf") if name in rule]
    return (
        all(any(accepts(value, option, root) for option in rules) for rules in alternatives)
        and value in rule.get("enum", [value])
        and value == rule.get("const", value)
        and ("type" not in rule or _has_type(value, rule["type"]))
        and _items_are_valid(value, rule, root)
    )


def _has_type(value: Any, kind: str) -> bool:
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _items_are_valid(value: Any, rule: dict[str, Any], root: dict[str, Any]) -> bool:
    if isinstance(value, list):
        return all(accepts(item, rule.get("items", {}), root) for item in value)
    if not isinstance(value, dict):
        return True
    properties, additional = rule.get("properties", {}), rule.get("additionalProperties", True)
    items = [(item, properties.get(key, additional)) for key, item in value.items()]
    return set(rule.get("required", [])) <= set(value) and all(
        schema if isinstance(schema, bool) else accepts(item, schema, root) for item, schema in items
    )
