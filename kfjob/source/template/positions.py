"""Where the fields of a template's objects are in its text, although references were replaced by words before parsing. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

import yaml

from kfjob.source.manifest_yaml import is_merge, list_merged, read_key
from kfjob.validation.field_paths import Path, Positions


class TextMap:
    """Maps offsets of the parsed text to lines and columns of the template's text; both count from 1."""

    def __init__(self, text: str, replaced: Sequence[tuple[int, int, int]]) -> None:
        """`replaced` holds start, end and the length of the new text for each replaced part of `text`, in their order."""
        self._lines = [0, *(index + 1 for index, character in enumerate(text) if character == "\n")]
        self._starts: list[int] = []
        self._parts: list[tuple[int, int, int]] = []  # end in the parsed text, start and end in the template's text
        shift = 0
        for start, end, length in replaced:
            self._starts.append(start + shift)
            self._parts.append((start + shift + length, start, end))
            shift += length - (end - start)

    def locate(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset in the parsed text."""
        offset = self.find_offset(offset)
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def find_offset(self, offset: int) -> int:
        """Return the offset in the template's text of an offset in the parsed text."""
        index = bisect_right(self._starts, offset) - 1
        if index >= 0:
            parsed_end, start, end = self._parts[index]
            return start if offset < parsed_end else end + offset - parsed_end
        return offset

    def collect(self, node: yaml.Node, file: str | None, names: Mapping[int, str]) -> Positions:
        """Return the positions of all keys and values below a document's node; `names` has variables by the id of a scalar."""
        keys: dict[Path, tuple[int, int]] = {}
        values: dict[Path, tuple[int, int]] = {}
        variables: dict[Path, str] = {}
        for path, key, value in walk(node):
            if id(value) in names:
                variables[path] = names[id(value)]
            values[path] = self.locate(value.start_mark.index)
            if key is not None:
                keys[path] = self.locate(key.start_mark.index)
        return Positions(file, keys, values, variables=variables)


def walk(node: yaml.Node, path: Path = (), key: yaml.Node | None = None) -> Iterator[tuple[Path, yaml.Node | None, yaml.Node]]:
    """Yield the path, the key and the value of all that is below a node, and of itself; only a mapping's value has a key."""
    yield path, key, node
    if isinstance(node, yaml.MappingNode):
        for inner_key, value in node.value:
            if is_merge(inner_key):
                for merged in list_merged(value):
                    yield from (part for part in walk(merged, path) if part[0] != path)
            else:
                yield from walk(value, (*path, read_key(inner_key)), inner_key)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from walk(item, (*path, index))
