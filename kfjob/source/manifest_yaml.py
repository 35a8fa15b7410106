"""Read YAML as kubectl does: the same scalars, keys and merges, as JSON data. Pure.

The rules are those of kubectl's reader, sigs.k8s.io/yaml v1.6.0 with go.yaml.in/yaml/v2 v2.4.2 (resolve.go, decode.go): mostly
YAML 1.1, so `y` is true, `0755` is 493 and `2e-05` is a number, but without dates and sexagesimal numbers. Only duplicate
keys differ: kubectl takes the last one. `read_documents` refuses them, and a caller of `read_value` has to find them.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import yaml

from kfjob.base.parsing import ParseError
from kfjob.source.yaml_loader import InvalidYamlError, Loader, TooLargeError, compose_documents, join_surrogates

_YAML = "tag:yaml.org,2002:"
PLAIN = "plain"
"""The tag of a scalar without quotes and without a tag, whose text decides its type."""
STR = f"{_YAML}str"
_RESOLVABLE = {f"{_YAML}{kind}": kind for kind in ("bool", "int", "float", "null", "timestamp")}
_BOOLEANS = {
    **{word: True for lower in ("y", "yes", "true", "on") for word in (lower, lower.capitalize(), lower.upper())},
    **{word: False for lower in ("n", "no", "false", "off") for word in (lower, lower.capitalize(), lower.upper())},
}
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WHOLE = (
    (re.compile(r"([-+]?)0[xX]([0-9a-fA-F]+)"), 16),
    (re.compile(r"([-+]?)0[oO]([0-7]+)"), 8),
    (re.compile(r"([-+]?)0[bB]([01]+)"), 2),
    (re.compile(r"0b([-+])([01]+)"), 2),
    (re.compile(r"([-+]?)0([0-7]+)"), 8),
    (re.compile(r"([-+]?)(0|[1-9][0-9]{0,19})"), 10),
)
"""The whole numbers by their base; longer decimal ones are floats."""
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LOOSE_UNDERSCORE = r"(?<![0-9])_|_(?![0-9])"
"""What Go does not read in a number that begins with a point (strconv, underscoreOK)."""
_TIMESTAMP = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]| +)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}.*)?"
_EXPONENTS_OF_DECIMALS = range(-4, 6)
"""Go's format `g` writes numbers with these exponents without an exponent (strconv/ftoa.go, formatDigits)."""
_LARGEST_FRACTION = 1e21
"""Go's JSON writes floats from here on with an exponent (encoding/json, floatEncoder)."""


class ManifestLoader(Loader):
    """Composes nodes for `read_value`, which needs to know whether a scalar was written without quotes and tag."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return the tag of a node that has none in the text."""
        return PLAIN if kind is yaml.ScalarNode and implicit[0] else str(super().resolve(kind, value, (False, True)))


def read_documents(text: str) -> list[Any]:
    """Return the JSON values of the documents in a text whose positions do not matter.

    Raises:
        ParseError: kubectl refuses the text, a key is duplicate, or it is nested too deeply or expands to too many values.
    """
    try:
        nodes = compose_documents(join_surrogates(text), ManifestLoader)
        for node in nodes:
            _check_keys(node)
        return [read_value(node) for node in nodes]
    except (TooLargeError, yaml.YAMLError, InvalidYamlError) as error:
        raise ParseError(str(error)) from error


def _check_keys(root: yaml.Node) -> None:
    rest = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, yaml.MappingNode):
            if repeated := next(find_repeated_keys(node), None):
                raise ParseError(f"duplicate key `{repeated[0]}`")
            rest += (part for pair in node.value for part in pair)
        elif isinstance(node, yaml.SequenceNode):
            rest += node.value


def find_repeated_keys(node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node]]:
    """Yield the name and the node of each key that has the name of an earlier one.

    Raises:
        yaml.constructor.ConstructorError: kubectl refuses a key.
    """
    names: set[str] = set()
    for key, _ in node.value:
        if not is_merge(key):
            if (name := read_key(key)) in names:
                yield name, key
            names.add(name)


def read_value(node: yaml.Node) -> Any:
    """Return the JSON value of a node.

    Raises:
        yaml.constructor.ConstructorError: kubectl refuses the value or a key.
    """
    if isinstance(node, yaml.ScalarNode):
        return _read_scalar(node)
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, {})
    return [read_value(item) for item in node.value]


def read_key(node: yaml.Node) -> str:
    """Return a key of a mapping as the text that kubectl makes of it: `1_000` is `1000`, `y` is `true`.

    Raises:
        yaml.constructor.ConstructorError: kubectl refuses the key.
    """
    value = resolve_scalar(node) if isinstance(node, yaml.ScalarNode) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, int) and value >= 2**63):
        raise _error("kubectl does not accept this key", node)
    return str(value) if isinstance(value, int) else _format_float32(value)


def is_merge(key: yaml.Node) -> bool:
    """Return whether a key merges other mappings into its own."""
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and key.tag in (PLAIN, f"{_YAML}merge")


def list_merged(value: yaml.Node) -> list[yaml.Node]:
    """Return the nodes that a key `<<` merges, in the order in which they take effect."""
    return value.value[::-1] if isinstance(value, yaml.SequenceNode) else [value]


def resolve_scalar(node: yaml.ScalarNode) -> Any:
    """Return the value of a scalar as text, int, float, bool or None; a float may be infinite.

    Raises:
        yaml.constructor.ConstructorError: the text does not fit the scalar's tag.
    """
    if node.tag == PLAIN:
        return resolve_plain(node.value)
    if node.tag == f"{_YAML}binary":
        return _decode_base64(node)
    if (kind := _RESOLVABLE.get(node.tag)) is None:
        return node.value
    value = resolve_plain(node.value)
    if kind == "float" and type(value) is int and value < 2**63:
        return float(value)
    is_timestamp = isinstance(value, str) and re.fullmatch(_TIMESTAMP, value)
    if kind != ("timestamp" if is_timestamp else _name_kind(value)):
        raise _error(f"`{node.value}` does not fit the tag `!!{kind}`", node)
    return value


def resolve_plain(text: str) -> Any:
    """Return the value of a scalar without quotes and tag as text, int, float, bool or None; a float may be infinite."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _NOT_FINITE.fullmatch(text):
        return float(text.lower().replace(".", ""))
    is_plain = text[0] == "." and re.search(_LOOSE_UNDERSCORE, text)
    plain = text if is_plain else text.replace("_", "")
    if (whole := _read_whole(plain)) is not None:
        return whole
    number = float(plain) if _FLOAT.fullmatch(plain) else math.inf
    return number if math.isfinite(number) else text


def _read_whole(text: str) -> int | None:
    for pattern, base in _WHOLE:
        if match := pattern.fullmatch(text):
            number = int(match[1] + match[2], base)
            is_signed = -(2**63) <= number < 2**63
            if is_signed or (not match[1] and number < 2**64):
                return number
    return None


def _read_scalar(node: yaml.ScalarNode) -> Any:
    value = resolve_scalar(node)
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        raise _error(f"JSON has no number `{node.value}`", node)
    is_whole = value.is_integer() and abs(value) < _LARGEST_FRACTION
    return int(Decimal(repr(value))) if is_whole else value


def _read_mapping(node: yaml.MappingNode, data: dict[str, Any]) -> dict[str, Any]:
    """Add a mapping to data; a later key or merge wins."""
    for key, value in node.value:
        if not is_merge(key):
            data[read_key(key)] = read_value(value)
            continue
        for mapping in list_merged(value):
            if not isinstance(mapping, yaml.MappingNode):
                raise _error("`<<` needs a mapping or a list of mappings", mapping)
            _read_mapping(mapping, data)
    return data


def _name_kind(value: Any) -> str:
    kinds: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "str"}
    return kinds.get(type(value), "null")


def _decode_base64(node: yaml.ScalarNode) -> str:
    try:
        return base64.b64decode(re.sub(r"[\r\n]", "", node.value), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise _error("this is not text in base64", node) from None


def _format_float32(number: float) -> str:
    """Return the shortest text of a number in single precision, as Go's `FormatFloat(number, 'g', -1, 32)`."""
    if not math.isfinite(number):
        return ".nan" if math.isnan(number) else ".inf" if number > 0 else "-.inf"
    try:
        packed = struct.pack("<f", number)
    except OverflowError:
        return ".inf" if number > 0 else "-.inf"
    single = struct.unpack("<f", packed)[0]
    digits = next(text for n in range(9) if struct.pack("<f", float(text := f"{single:.{n}e}")) == packed)
    return f"{Decimal(digits):f}" if int(digits.partition("e")[2]) in _EXPONENTS_OF_DECIMALS else digits


def _error(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
