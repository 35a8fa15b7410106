"""Generate docs/reference/limits.md: `python -m kfjob.cli.limits_reference > docs/reference/limits.md`.

The page lists every constant of the package whose name says that it is a limit and that has a description. The sources are
parsed, not imported, because some of them need torch.
"""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from kfjob.base import units
from kfjob.base.text import plural

_ROOT = Path(__file__).parents[1]
_UNITS = {
    "SECONDS": "second",
    "TIMEOUT": "second",
    "NANOSECONDS": "nanosecond",
    "BYTES": "byte",
    "LINES": "line",
    "CHARACTERS": "character",
    "PAGES": "page",
    "THREADS": "thread",
    "CONNECTIONS": "connection",
}
"""Units of values, by the last word of a constant's name."""
_NAME = re.compile(rf"(?!_?MIN_)_?(MAX_\w+|(\w+_)?({'|'.join(_UNITS)}))")
_OTHER_NAMES = frozenset(
    {
        *("POLL_SECONDS", "END_POLL_SECONDS", "TICK_SECONDS", "INTERVAL_SECONDS", "COLLECT_SECONDS", "SIGNAL_SECONDS"),
        *(
            "GATHER_SECONDS",
            "FRESH_SECONDS",
            "OPEN_LINE_SECONDS",
            "SHORT_STREAM_SECONDS",
            "BACKOFF_SECONDS",
            "MAX_PAUSE_SECONDS",
        ),
        *("FIRST_RETRY_SECONDS", "LAST_RETRY_SECONDS", "RetryPolicy.first_pause"),
        *("CHUNK_BYTES", "TIMESTAMP_BYTES", "LOCK_TRIAL_BYTES", "BYTES", "SHUTDOWN_TIMEOUT", "AFTER_ALL_LINES"),
    }
)
"""Names of poll intervals, of back-offs, and of sizes that limit no input."""
_CLASSES = {"Limits", "RetryPolicy"}
"""Classes whose fields are limits."""
_SECTIONS = {
    "backends/kubernetes": "API server",
    "api": "Commands",
    "cli": "Output",
    "image": "Images and registries",
    "spec": "Specs",
    "plan": "Specs",
    "compile": "Specs",
    "lint": "Specs",
    "convert": "Specs",
    "observe": "Logs and diagnosis",
    "report": "Reports",
    "backends/local": "This machine",
    "backends": "Logs and archives",
    "trainer": "Trainer",
    "redaction": "Redaction",
    "token_shapes": "Redaction",
    "": "Files and programs",
}
"""Headings by the package that a constant is in; the first that fits counts."""
_INTRODUCTION = """\
# Limits

kfjob bounds the time, the memory and the work that any input causes: files, answers of servers, output of programs, and
log lines. The values are constants of the code. An input beyond a limit is an error or is cut, as the description says.

"""
_SIZES = ((units.GIB, "GiB"), (units.MIB, "MiB"), (units.KIB, "KiB"))
_TIMES = ((86_400, "day"), (3600, "hour"), (60, "min"))
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul, ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.Sub: operator.sub, ast.Add: operator.add,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A constant, or a field of a class of limits."""

    file: str
    name: str
    value: float
    description: str

    @property
    def section(self) -> str:
        """The heading of the page."""
        return next(heading for package, heading in _SECTIONS.items() if self.file.startswith(package))

    def format_value(self) -> str:
        """Return the value with the unit that the name ends with."""
        match _UNITS.get(self.name.upper().rpartition("_")[2].rpartition(".")[2]):
            case "byte":
                return _scale(self.value, _SIZES, "byte")
            case "second":
                return _scale(self.value, _TIMES, "s")
            case "nanosecond":
                return _scale(self.value / units.SECOND, _TIMES, "s")
            case str(noun):
                return f"{self.value:,} {noun}{'s' * (self.value != 1)}"
        return f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:g}"


def _scale(value: float, scale: tuple[tuple[int, str], ...], unit: str) -> str:
    for factor, name in scale:
        if value >= factor and value % factor == 0:
            count = int(value // factor)
            return plural(count, name) if name in ("day", "hour") else f"{count:,} {name}"
    return plural(int(value), unit) if unit == "byte" else f"{value:g} {unit}"


def _is_limit(name: str, prefix: str = "") -> bool:
    """Return whether a constant, or a field of the class that `prefix` names, is a limit."""
    return prefix + name.lstrip("_") not in _OTHER_NAMES and bool(prefix or _NAME.fullmatch(name))


def find_undescribed(root: Path = _ROOT) -> Iterator[str]:
    """Yield the constants that are limits by their names and have no description, as `file NAME`."""
    described = {(limit.file, limit.name) for limit in list_limits(root)}
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        constants = _read_constants(ast.parse(file.read_text(encoding="utf-8")))
        for name, value in constants.items():
            if _is_limit(name) and isinstance(value, int | float) and (path, name) not in described:
                yield f"{path} {name}"


def list_limits(root: Path = _ROOT) -> Iterator[Limit]:
    """Yield the limits of all modules, by file."""
    for file in sorted(root.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        path = file.relative_to(root).as_posix()
        yield from _read_body(path, tree.body, "", _read_constants(tree))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in _CLASSES:
                yield from _read_body(path, node.body, f"{node.name}.", _read_constants(tree))


def _read_body(file: str, body: list[ast.stmt], prefix: str, constants: Mapping[str, Any]) -> Iterator[Limit]:
    for node, following in pairwise(body):
        description = _read_description(following)
        for name, value in _read_assignment(node, constants):
            if description and _is_limit(name, prefix) and isinstance(value, int | float):
                yield Limit(file=file, name=prefix + name, value=value, description=description)


def _read_description(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""


def _read_constants(tree: ast.Module) -> dict[str, Any]:
    constants: dict[str, Any] = {name: getattr(units, name) for name in ("KIB", "MIB", "GIB", "SECOND")}
    for node in tree.body:
        constants |= dict(_read_assignment(node, constants))
    return constants


def _read_assignment(node: ast.stmt, constants: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and the values of an assignment of numbers; of a pair of names, both."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=value):
            yield name, _compute(value, constants)
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            pairs = zip(names, values, strict=False)
            yield from ((name.id, _compute(value, constants)) for name, value in pairs if isinstance(name, ast.Name))


def _compute(node: ast.expr | None, constants: Mapping[str, Any]) -> Any:
    """Return the value of an expression of numbers and constants; None for another expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _compute(node.left, constants), _compute(node.right, constants)
        return None if left is None or right is None else _OPERATORS[type(node.op)](left, right)
    return None


def format_page() -> str:
    """Return the page."""
    limits = list(list_limits())
    text = _INTRODUCTION
    for heading in dict.fromkeys(_SECTIONS.values()):
        rows = [
            f"| {limit.format_value()} | {limit.description.replace('|', '&#124;')} | `{limit.file}` `{limit.name}` |\n"
            for limit in limits
            if limit.section == heading
        ]
        if rows:
            text += f"## {heading}\n\n| value | what it limits | constant |\n| --- | --- | --- |\n{''.join(rows)}\n"
    return text.rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(format_page())
