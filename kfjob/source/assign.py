"""Set fields of a spec as `--set FIELD=VALUE` says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.base.text import IMPOSSIBLE
from kfjob.redaction import is_secret_name
from kfjob.source.yaml_text import parse_yaml
from kfjob.validation.field_paths import Path, join_path, parse_path


def apply_assignments(data: JsonObject, assignments: Sequence[str]) -> tuple[dict[Path, str], list[Problem]]:
    """Set fields in `data`, and return the assignment that set each path, and the problems of the other assignments."""
    origins: dict[Path, str] = {}
    problems: list[Problem] = []
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        path = parse_path(name)
        hides = is_secret_name(name) or any(is_secret_name(str(part)) for part in path)
        origin = f"--set {name}=…" if hides else f"--set {assignment}"
        if not equals or not name:
            problems.append(
                Problem(title="an assignment has the form `FIELD=VALUE`", file=origin, hint="for example `--set nodes=4`")
            )
        elif IMPOSSIBLE.search(text):
            origin = f"--set {name}"
            problems.append(Problem(title="a text holds NUL or bytes that are not UTF-8", path=name, file=origin))
        elif not _set(data, path, _parse_value(text)):
            problems.append(Problem(title=f"cannot set `{name}`: the spec has no such field", path=name, file=origin))
        else:
            origins[path] = origin
    return origins, problems


def find_kept_arguments(data: JsonObject, assigned: Collection[Path]) -> Iterator[tuple[Path, Problem]]:
    """Yield the `args` of the text that follow a `command` from an assignment, which was written without a look at them."""
    for *parents, last in assigned:
        path = (*parents, "args")
        section: Any = data
        for part in parents:
            section = section.get(str(part)) if isinstance(section, dict) else None
        arguments = section.get("args") if isinstance(section, dict) else None
        if last == "command" and arguments and not any(other[: len(path)] == path for other in assigned):
            name = join_path(path)
            hint = f"`--set '{name}=[]'` removes them"
            yield (
                path,
                Problem(title=f"the words of `{name}` still follow the new command", path=name, hint=hint, severity="note"),
            )


def _parse_value(text: str) -> Any:
    """Return the value of a YAML text. A text that is not YAML is a word, as in a shell."""
    try:
        value, _ = parse_yaml(text)
    except SpecError:
        return text
    return value


def _set(data: Any, path: Path, value: Any) -> bool:
    """Set the value at a path, and return whether the path exists.

    Mappings on the way are created, and a list may grow by one item.
    """
    *parents, last = path
    for part in parents:
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
