"""As much of JSON Schema as the schema of a spec uses."""

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


def accepts(value: Any, rule: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Whether `value` meets `rule`, which stands in the schema `whole`."""
    if "$ref" in rule:
        return accepts(value, whole["$defs"][rule["$ref"].rpartition("/")[2]], whole)
    several = [rule[name] for name in ("anyOf", "oneOf") if name in rule]
    return (
        all(any(accepts(value, one, whole) for one in rules) for rules in several)
        and value in rule.get("enum", [value])
        and value == rule.get("const", value)
        and ("type" not in rule or _is(value, rule["type"]))
        and _inside(value, rule, whole)
    )


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _inside(value: Any, rule: dict[str, Any], whole: dict[str, Any]) -> bool:
    if isinstance(value, list):
        return all(accepts(item, rule.get("items", {}), whole) for item in value)
    if not isinstance(value, dict):
        return True
    known, others = rule.get("properties", {}), rule.get("additionalProperties", True)
    inner = [(item, known.get(key, others)) for key, item in value.items()]
    return set(rule.get("required", [])) <= set(value) and all(
        one if isinstance(one, bool) else accepts(item, one, whole) for item, one in inner
    )
