"""The YAML loader for every text that a user provides."""

from __future__ import annotations

from typing import Any

import yaml

from kfjob.errors import Problem
from kfjob.parsing import ParseError

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe loader; libyaml's, which is ten times faster, where PyYAML was built with it."""

MAX_NUMBER = 100
"""Characters of a number in a YAML text. PyYAML's time for numbers such as `1:30:00` grows with the square of their length."""

MAX_DEPTH = 100
"""Nested levels of a YAML text; libyaml's composer recurses for every level, and crashes the process at some tens of
thousands."""


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


def load_yaml(text: str) -> Any:
    """Return the value of a YAML document whose positions do not matter.

    Raises:
        ParseError: the text is not YAML, or is nested too deeply.
    """
    try:
        check_depth(text)
        return yaml.load(text, Loader)  # noqa: S506 - a safe loader
    except TooLargeError as error:
        raise ParseError(str(error)) from None
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ParseError(str(error) or "it is nested too deeply") from error
