"""`image: …@sha256:…` put into the text of a spec. Everything else stays as it was, to the character. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from kfjob.errors import Problem, SpecError
from kfjob.spec.yaml_loader import Loader
from kfjob.spec.yaml_text import parse_yaml

_ANCHOR = re.compile(r"(?:[&!]\S*\s+)+")


def pin_image(text: str, image: str, *, file: str | None = None) -> str:
    """The text with this image, at its place if it names one, else after the job's name.

    Raises:
        SpecError: it is not a spec, or the image is written in a way that cannot be changed in place.
    """
    before, _ = parse_yaml(text, file=file)
    root = yaml.compose(text, Loader=Loader)
    if not isinstance(root, yaml.MappingNode) or not isinstance(before, dict):
        raise SpecError([Problem(title="a job spec is a mapping", file=file, line=1, column=1)])
    fields = {key.value: (key, value) for key, value in root.value if isinstance(key, yaml.ScalarNode)}
    written = json.dumps(image) if root.flow_style else image
    made = _replaced(text, *fields["image"], written) if "image" in fields else _added(text, root, fields, written)
    after, _ = parse_yaml(made, file=file)
    if after != {**before, "image": image}:
        line = fields["image"][0].start_mark.line + 1 if "image" in fields else 1
        hint = f"write `image: {image}` there yourself"
        raise SpecError([Problem(title="the image cannot be pinned in this text", file=file, line=line, column=1, hint=hint)])
    return made


def _replaced(text: str, key: yaml.Node, value: yaml.Node, image: str) -> str:
    start, end = value.start_mark.index, value.end_mark.index
    if start < key.end_mark.index:  # an alias: its value stands elsewhere
        start = text.index("*", key.end_mark.index)
        end = start + len(re.split(r"[\s,}]", text[start:], maxsplit=1)[0])
    old = text[start:end]
    if anchor := _ANCHOR.match(old):
        start += anchor.end()
    space = "" if text[start - 1].isspace() else " "
    line_end = "\n" if old.endswith("\n") else ""  # of a block scalar
    return text[:start] + space + image + line_end + text[end:]


def _added(text: str, root: yaml.MappingNode, fields: dict[str, tuple[yaml.ScalarNode, Any]], image: str) -> str:
    if root.flow_style:
        at = text.index("{", root.start_mark.index) + 1
        return f'{text[:at]}"image": {image}{", " if root.value else ""}{text[at:]}'
    after = fields.get("name", next(iter(fields.values())))[1].end_mark.index
    newline = "\r\n" if "\r\n" in text else "\n"
    line_end = text.find("\n", after)
    indent = " " * root.start_mark.column
    if line_end < 0:
        return f"{text}{newline}{indent}image: {image}{newline}"
    return f"{text[: line_end + 1]}{indent}image: {image}{newline}{text[line_end + 1 :]}"
