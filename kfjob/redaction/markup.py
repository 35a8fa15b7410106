"""Find secrets in XML and HTML: in elements, in attributes, and in elements that name the next one. Pure.

`<password>x</password>`, `<add value="x" key="ApiKey"/>` and `<name>api.key</name><value>x</value>` show a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from kfjob.redaction.names import Strength, is_qualified, is_secret_name, rate_name
from kfjob.redaction.values import is_field_name, is_secret_value, looks_chosen

Span = tuple[int, int]
_TAG = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z_][\w:.-]{0,80}+)"
    r"(?P<attributes>(?>(?:[^<>\"'\\]++|\\{1,8}(?![\"'\\])|\\{0,8}\"[^\"<>]*+\"|\\{0,8}'[^'<>]*+')*))>"
)
_ATTRIBUTE = re.compile(
    r"(?P<name>[\w:.-]{1,80}+)\s{0,8}=\s{0,8}\\{0,8}(?P<quote>[\"'])"
    r"(?P<value>(?>(?:[^\\\"'\n]++|(?!(?P=quote)|\\).|\\(?!(?P=quote)))*))"
)
_DATA_START, _DATA_END = "<![CDATA[", "]]>"
_TEXT_LABELS = frozenset({"name", "key", "property", "field", "param", "parameter", "variable"})
"""Attributes and elements that name the value of an element."""
_LABELS = _TEXT_LABELS | {"id", "type"}
"""Attributes that name the value in another attribute."""
_VALUES = frozenset({"value", "content", "default", "data", "text", "val"})
_MAX_NAME = 80
"""Characters of an element or an attribute that can name a secret."""


class _Tag(NamedTuple):
    """A tag of an element."""

    name: str
    start: int
    end: int
    is_close: bool
    is_empty: bool
    attributes: tuple[tuple[str, str, int], ...]
    """The name, the value and the position of the value of each."""


def find_markup(text: str) -> Iterator[Span]:
    """Yield the ranges of the secrets in elements and attributes."""
    tags = [_read_tag(match) for match in _TAG.finditer(text)]
    partners = _match_tags(tags)
    covered, sibling = 0, ""
    for index, tag in enumerate(tags):
        if tag.is_close:
            continue
        last = partners.get(index)
        yield from _find_values(tag)
        name = _find_name(tag) or sibling
        if name and index >= covered and not tag.is_empty:
            covered = last or index
            yield from _find_content(text, tags, (index, last), name)
        sibling = _read_label(text, tag, tags[last]) if last == index + 1 else ""


def _read_tag(match: re.Match[str]) -> _Tag:
    offset = match.start("attributes")
    attributes = tuple(
        (_strip_prefix(item["name"]).lower(), item["value"], offset + item.start("value"))
        for item in (_ATTRIBUTE.finditer(match["attributes"]) if "=" in match["attributes"] else ())
    )
    is_empty = match["attributes"].endswith("/")
    return _Tag(_strip_prefix(match["name"]), *match.span(), bool(match["close"]), is_empty, attributes)


def _strip_prefix(name: str) -> str:
    return name.rpartition(":")[2]


def _match_tags(tags: Sequence[_Tag]) -> dict[int, int]:
    """Return the index of the closing tag for the index of every opening tag that has one."""
    partners: dict[int, int] = {}
    opened: dict[str, list[int]] = {}
    for index, tag in enumerate(tags):
        stack = opened.setdefault(tag.name.lower(), [])
        if not tag.is_close and not tag.is_empty:
            stack.append(index)
        elif tag.is_close and stack:
            partners[stack.pop()] = index
    return partners


def _find_name(tag: _Tag) -> str:
    """Return the name of the secret in an element; empty if its name and its attributes show none."""
    labels = (value for name, value, _ in tag.attributes if name in _TEXT_LABELS)
    return next((name for name in (tag.name, *labels) if _is_name(name)), "")


def _read_label(text: str, tag: _Tag, close: _Tag) -> str:
    """Return the name in an element such as `<key>password</key>`, which the element with the value follows."""
    content = text[tag.end : close.start].strip() if close.start - tag.end <= _MAX_NAME else ""
    return content if tag.name.lower() in _TEXT_LABELS and _is_name(content) else ""


def _is_name(text: str) -> bool:
    return len(text) <= _MAX_NAME and " " not in text and bool(rate_name(text)) and is_secret_name(text)


def _find_values(tag: _Tag) -> Iterator[Span]:
    """Yield the values of a tag whose other attributes name a secret."""
    names = [value for name, value, _ in tag.attributes if name in _LABELS and _is_name(value)]
    for name, value, start in tag.attributes if names else ():
        if name in _VALUES and value and is_secret_value(names[0], rate_name(names[0]), value):
            yield start, start + len(value)


def _find_content(text: str, tags: Sequence[_Tag], element: tuple[int, int | None], name: str) -> Iterator[Span]:
    """Yield the texts in an element that are secrets."""
    index, last = element
    if last is not None:
        for tag, following in pairwise(tags[index : last + 1]):
            yield from _judge(text, name, tag.end, following.start)
        return
    before = tags[index - 1].end if index else 0
    line = text.rfind("\n", before, tags[index].start) + 1
    if (index and not line) or text[max(before, line) : tags[index].start].strip():
        return  # not the first on its line
    end = text.find("\n", tags[index].end)
    value = text[tags[index].end : end if end >= 0 else len(text)].rstrip()
    if not any(map(str.isspace, value)) and "<" not in value:  # the text was cut, or the element goes on
        yield from _judge(text, name, tags[index].end, tags[index].end + len(value))


def _judge(text: str, name: str, start: int, end: int) -> Iterator[Span]:
    """Yield the text between two tags if it is the secret of this name."""
    value = text[start:end].strip()
    if value.startswith(_DATA_START):
        start, end = text.find(_DATA_START, start) + len(_DATA_START), text.rfind(_DATA_END, start, end)
    value = text[start:end]
    start, end = start + len(value) - len(value.lstrip()), start + len(value.rstrip())
    value, strength = text[start:end], rate_name(name)
    is_clear = strength >= Strength.STRONG or is_qualified(name) or looks_chosen(value)
    if value and is_clear and not is_field_name(value) and is_secret_value(name, strength, value):
        yield start, end
