"""Replace secrets in the free text of structs, and in nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields, replace

from kfjob.base.common_types import IDENTIFIER
from kfjob.redaction.redactor import Redactor

S = TypeVar("S", bound=Struct)
_SEQUENCES = (tuple, list, set, frozenset)
_IDENTIFIER = r"[\w.:/@+-]*"


def redact_struct(value: S, redactor: Redactor) -> S:
    """Return a struct without the secrets in its texts.

    Values of enums and literals, and words in fields of the type `Identifier`, are no texts: kfjob looks things up by them. A
    known secret can be such a word.
    """
    redacted = {
        field.name: _redact(getattr(value, field.name), field.type, field.encode_name, redactor) for field in fields(value)
    }
    return replace(value, **redacted)


def list_identifiers(value: Struct) -> Iterator[str]:
    """Yield the identifiers in the fields of a struct and of the structs in it."""
    for field in fields(value):
        content = getattr(value, field.name)
        if isinstance(content, str) and not isinstance(content, Enum) and str not in _list_types(field.type):
            yield content
        for item in content if isinstance(content, tuple | list) else (content,):
            if isinstance(item, Struct):
                yield from list_identifiers(item)


def _redact(value: Any, annotation: Any, name: str, redactor: Redactor) -> Any:
    """Return the value of a field, or an item of it."""
    if isinstance(value, Struct):
        return redact_struct(value, redactor)
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        is_text = str in _list_types(annotation) or not re.fullmatch(_IDENTIFIER, value)
        return redactor.value(value, name) if is_text else value
    if isinstance(value, _SEQUENCES):
        return type(value)(_redact_items(list(value), annotation, name, redactor))
    return redactor.value(value, name) if isinstance(value, dict) else value


def _redact_items(values: list[Any], annotation: Any, name: str, redactor: Redactor) -> list[Any]:
    members = (annotation, *get_args(annotation))  # of a union, such as `tuple[str, ...] | None`
    types = next((get_args(member) for member in members if get_origin(member) in _SEQUENCES), (str,))
    if types in ((str,), (str, ...)):
        return list(redactor.value(values, name))  # lines of one log: a key may have several
    by_item = types if len(types) == len(values) and ... not in types else types[:1] * len(values)
    return [_redact(value, item, name, redactor) for value, item in zip(values, by_item, strict=True)]


def _list_types(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union, without those whose texts are identifiers."""
    if IDENTIFIER in getattr(annotation, "__metadata__", ()):
        return
    members = get_args(annotation)
    if isinstance(annotation, type) or not members:
        yield annotation
    for member in members:
        if not isinstance(member, str):  # of a literal
            yield from _list_types(member)
