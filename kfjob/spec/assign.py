"""`--set`: values that are put over what a spec says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kfjob.errors import Problem, SpecError
from kfjob.spec.paths import Path, parse_path
from kfjob.spec.yaml_text import parse_yaml


def apply_assignments(data: dict[str, Any], assignments: Sequence[str], problems: list[Problem]) -> dict[Path, str]:
    """Change `data` as the assignments say; where each value came from."""
    made: dict[Path, str] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        path, where = parse_path(name), f"--set {assignment}"
        try:
            value, _ = parse_yaml(text)
        except SpecError:
            value = text  # as in a shell: what is no YAML is a word
        if not equals or not name:
            problems.append(Problem(title="an assignment is `field=value`", file=where, hint="for example `--set nodes=4`"))
        elif not _put(data, path, value):
            problems.append(Problem(title=f"there is no `{name}` to set", path=name, file=where))
        else:
            made[path] = where
    return made


def _put(data: Any, path: Path, value: Any) -> bool:
    """Put a value at a path; mappings on the way are made, a list may grow by one. False if there is no such place."""
    *way, last = path
    for part in way:
        if isinstance(data, dict):
            data = data.setdefault(str(part), {})
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return False
    if isinstance(data, dict):
        data[str(last)] = value
    elif isinstance(data, list) and isinstance(last, int) and last <= len(data):
        data[last : last + 1] = [value]
    else:
        return False
    return True
