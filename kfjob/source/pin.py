"""Pin an image (`image: …@sha256:…`) in the text of a spec without changing any other character. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from kfjob.base.errors import Problem, SpecError
from kfjob.source.yaml_loader import Loader
from kfjob.source.yaml_text import parse_yaml

_ANCHOR = re.compile(r"(?:[&!]\S*\s+)+")


def pin_image(text: str, image: str, *, file: str | None = None) -> str:
    """Return the text with this image: at the field `image` if there is one, else after the job's name.

    Raises:
        SpecError: the text is not a spec, or its image cannot be replaced in place.
    """
    data, _ = parse_yaml(text, file=file)
    root = yaml.compose(text, Loader=Loader)
    if not isinstance(root, yaml.MappingNode) or not isinstance(data, dict):
        raise SpecError([Problem(title="a job spec must be a mapping", file=file, line=1, column=1)])
    fields = {key.value: (key, value) for key, value in root.value if isinstance(key, yaml.ScalarNode)}
    scalar = json.dumps(image) if root.flow_style else image
    pinned = _replace_image(text, *fields["image"], scalar) if "image" in fields else _add_image(text, root, fields, scalar)
    pinned_data, _ = parse_yaml(pinned, file=file)
    if pinned_data != {**data, "image": image}:
        line = fields["image"][0].start_mark.line + 1 if "image" in fields else 1
        hint = f"write `image: {image}` there by hand"
        raise SpecError([Problem(title="cannot pin the image in this text", file=file, line=line, column=1, hint=hint)])
    return pinned


def _replace_image(text: str, key: yaml.Node, value: yaml.Node, image: str) -> str:
    start, end = value.start_mark.index, value.end_mark.index
    if start < key.end_mark.index:  # an alias, whose value is elsewhere in the text
        start = text.index("*", key.end_mark.index)
        end = start + len(re.split(r"[\s,}]", text[start:], maxsplit=1)[0])
    old = text[start:end]
    if anchor := _ANCHOR.match(old):
        start += anchor.end()
    space = "" if text[start - 1].isspace() else " "
    line_end = "\n" if old.endswith("\n") else ""  # a block scalar includes its line end
    return text[:start] + space + image + line_end + text[end:]


def _add_image(text: str, root: yaml.MappingNode, fields: dict[str, tuple[yaml.ScalarNode, Any]], image: str) -> str:
    if root.flow_style:
        start = text.index("{", root.start_mark.index) + 1
        return f'{text[:start]}"image": {image}{", " if root.value else ""}{text[start:]}'
    name_end = fields.get("name", next(iter(fields.values())))[1].end_mark.index
    newline = "\r\n" if "\r\n" in text else "\n"
    line_end = text.find("\n", name_end)
    indent = " " * root.start_mark.column
    if line_end < 0:
        return f"{text}{newline}{indent}image: {image}{newline}"
    return f"{text[: line_end + 1]}{indent}image: {image}{newline}{text[line_end + 1 :]}"
