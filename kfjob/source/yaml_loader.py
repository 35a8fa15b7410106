"""The YAML loader for every text that a user provides."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from kfjob.base.errors import Problem
from kfjob.base.parsing import ParseError, parse_json

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe loader; libyaml's, which is ten times faster, where PyYAML was built with it."""

MAX_NUMBER = 100
"""Characters of a number in a YAML text. PyYAML's time for numbers such as `1:30:00` grows with the square of their length."""

MAX_DEPTH = 100
"""Nested levels of a YAML text; libyaml's composer recurses for every level, and crashes the process at some tens of
thousands."""


MAX_VALUES = 200_000
"""Values and keys of a YAML text; a few lines of aliases can expand to more than fits into memory."""


class Loader(_SafeLoader):  # type: ignore[misc]
    """A safe loader that refuses very long numbers."""

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """Return the value of a number."""
        if len(node.value) > MAX_NUMBER:
            raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
        is_whole = node.tag == "tag:yaml.org,2002:int"
        return self.construct_yaml_int(node) if is_whole else self.construct_yaml_float(node)


for _kind in ("int", "float"):
    Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", Loader.construct_number)


class TooLargeError(Exception):
    """A text is nested too deeply, or expands to too many values."""

    def __init__(self, title: str, position: tuple[int, int]) -> None:
        super().__init__(title)
        self.problem = Problem(title=title, line=position[0], column=position[1])


def check_depth(text: str) -> None:
    """Reject a text that could crash the composer. Most texts have too few brackets and too short lines for that.

    Raises:
        TooLargeError: the text is nested too deeply.
        yaml.YAMLError: the text is not YAML.
    """
    if text.count("[") + text.count("{") + max(map(len, text.splitlines()), default=0) < 10 * MAX_DEPTH:
        return
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            mark = event.start_mark
            raise TooLargeError("the YAML is nested too deeply", (mark.line + 1, mark.column + 1) if mark else (1, 1))


class InvalidYamlError(Exception):
    """A text is not YAML, or a value does not fit its tag, at an unknown place."""


_SURROGATES = r"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
"""The escapes of one character beyond U+FFFF in JSON. YAML refuses each of the two."""


def join_surrogates(text: str) -> str:
    r"""Return a text of JSON with one character for each pair of escapes `\ud83d\ude00`, and any other text as it is."""
    if not text.lstrip().startswith(("{", "[")) or not re.search(_SURROGATES, text):
        return text
    try:
        parse_json(text)
    except ParseError:
        return text
    return re.sub(_SURROGATES, lambda match: match[1] + str(parse_json(f'"{match[2]}"')), text)


def compose_documents(text: str, loader_class: type[Loader] = Loader, *, single: bool = False) -> list[yaml.Node]:
    """Return the root nodes of the documents in a text; with `single`, more than one document is an error.

    Raises:
        TooLargeError: the text is nested too deeply, or its aliases expand to too many values.
        yaml.MarkedYAMLError: the text is not YAML, at a known place.
        InvalidYamlError: the text is not YAML, at an unknown place.
    """
    check_depth(text)
    with _name_errors():
        loader = loader_class(text)
        try:
            nodes = [loader.get_single_node()] if single else _compose_all(loader)
        finally:
            loader.dispose()
    nodes = [node for node in nodes if node is not None]
    count = itertools.count(1)
    for node in nodes:
        _check_size(node, {}, count)
    return nodes


def _compose_all(loader: Any) -> list[yaml.Node]:
    nodes = []
    while loader.check_node():
        nodes.append(loader.get_node())
    return nodes


def _check_size(node: yaml.Node, ancestors: dict[int, None], count: Iterator[int]) -> None:
    """Reject a node whose aliases expand too deeply, to too many values, or without an end."""
    if next(count) > MAX_VALUES:
        raise TooLargeError("the text has too many values, counted with its aliases expanded", get_position(node))
    if isinstance(node, yaml.ScalarNode):
        return
    if id(node) in ancestors:
        raise TooLargeError("an alias contains itself", get_position(node))
    if len(ancestors) > MAX_DEPTH:
        raise TooLargeError("the YAML is nested too deeply", get_position(node))
    ancestors[id(node)] = None
    parts = itertools.chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
    for part in parts:
        _check_size(part, ancestors, count)
    del ancestors[id(node)]


def construct_value(node: yaml.Node) -> Any:
    """Return the value of a node.

    Raises:
        yaml.MarkedYAMLError, InvalidYamlError: a value does not fit its tag.
    """
    with _name_errors():
        return Loader("").construct_document(node)


@contextmanager
def _name_errors() -> Iterator[None]:
    """Turn what PyYAML raises without a position into `InvalidYamlError`: its constructor lets many exceptions through."""
    try:
        yield
    except yaml.MarkedYAMLError:
        raise
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InvalidYamlError(str(error) or "it is nested too deeply") from error


def get_position(node: yaml.Node) -> tuple[int, int]:
    """Return the line and the column where a node begins."""
    mark = node.start_mark
    return mark.line + 1, mark.column + 1


def load_yaml(text: str) -> Any:
    """Return the value of a YAML document whose positions do not matter.

    Raises:
        ParseError: the text is not YAML, is nested too deeply, or expands to too many values.
    """
    try:
        nodes = compose_documents(text, single=True)
        return construct_value(nodes[0]) if nodes else None
    except (TooLargeError, yaml.YAMLError, InvalidYamlError) as error:
        raise ParseError(str(error)) from error
