"""What every part of a spec is made of: quantities, words of a command, values of an environment, and how a fault is said."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from kfjob.spec import names
from kfjob.spec.base import SpecModel

QUANTITY_PATTERN = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?", re.ASCII)
ENV_NAME_PATTERN = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def field_error(kind: str, message: str, **context: Any) -> PydanticCustomError:
    """An error in our words; `path` in the context moves it to another field, `hint` says what to do."""
    return PydanticCustomError(kind, message.replace("{", "{{").replace("}", "}}"), context)


def _quantity(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    text = str(value)
    if not QUANTITY_PATTERN.fullmatch(text):
        raise field_error("quantity", f"`{text}` is not a Kubernetes quantity", hint="write for example `2`, `500m`, `16Gi`")
    return text


Quantity = Annotated[str, BeforeValidator(_quantity, json_schema_input_type=str | int | float)]


def _env_value(value: object) -> object:
    if isinstance(value, bool):
        raise field_error(
            "env_bool",
            f"an environment variable is text, and `{value}` could be meant in two ways",
            hint='put it in quotes: "true"',
        )
    return str(value) if isinstance(value, int | float) else value


EnvValue = Annotated[str, BeforeValidator(_env_value, json_schema_input_type=str | int | float)]


def _words(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as err:
        raise field_error("command_quotes", f"the command cannot be split into words: {str(err).lower()}") from err


Command = Annotated[tuple[str, ...], BeforeValidator(_words, json_schema_input_type=str | tuple[str, ...])]


def _label(value: str) -> str:
    if not names.DNS_1123.fullmatch(value) or len(value) > names.MAX_LABEL:
        raise field_error("dns_1123", f"`{value}` is not a DNS-1123 label (lower-case letters, digits and `-`)")
    return value


DnsLabel = Annotated[str, AfterValidator(_label)]
"""A DNS-1123 label: the name of a namespace, a volume, a port, a container."""


def _object_name(value: str) -> str:
    if not names.DNS_1123_SUBDOMAIN.fullmatch(value) or len(value) > names.MAX_NAME:
        raise field_error(
            "object_name", f"`{value}` is not the name of a Kubernetes object (lower-case letters, digits, `-` and `.`)"
        )
    return value


ObjectName = Annotated[str, AfterValidator(_object_name)]
"""A DNS-1123 subdomain: the name of most objects, such as claims, secrets, classes."""


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise field_error("absolute_path", f"`{value}` is not an absolute path")
    return value.rstrip("/") or "/"


AbsolutePath = Annotated[str, AfterValidator(_absolute)]


def _label_value(value: str) -> str:
    if value and (len(value) > names.MAX_LABEL or not names.LABEL_VALUE.fullmatch(value)):
        raise field_error(
            "label_value", f"`{value}` cannot be the value of a label: at most 63 letters, digits, `-`, `_` and `.`"
        )
    return value


LabelValue = Annotated[EnvValue, AfterValidator(_label_value)]


def _key(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    well = names.LABEL_VALUE.fullmatch(name) and len(name) <= names.MAX_LABEL
    if not well or (slash and (not names.DNS_1123_SUBDOMAIN.fullmatch(prefix) or len(prefix) > names.MAX_NAME)):
        raise field_error(
            "metadata_key", f"`{value}` cannot be the key of a label or an annotation", hint="for example `example.com/team`"
        )
    return value


MetadataKey = Annotated[str, AfterValidator(_key)]


def find_duplicate(items: Iterable[object]) -> int | None:
    """The index of the first item that stands before it already."""
    seen: list[object] = []
    for index, item in enumerate(items):
        if item in seen:
            return index
        seen.append(item)
    return None


class SecretKey(SpecModel):
    """One entry of a secret of the job's namespace."""

    secret: ObjectName
    key: str


def _secret_key(value: object) -> object:
    if not isinstance(value, str):
        return value
    secret, slash, key = value.partition("/")
    if not slash or not key:
        raise field_error(
            "secret_key", "a key or token is taken from a secret, and never stands in a spec", hint="write `SECRET/KEY`"
        )
    return {"secret": secret, "key": key}


SecretRef = Annotated[SecretKey, BeforeValidator(_secret_key, json_schema_input_type=str | SecretKey)]
"""`secret/key`, or a mapping of the two."""
