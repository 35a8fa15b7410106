"""Recognise files of other programs that a user gives in place of a job spec, and say which command reads them."""

from __future__ import annotations

import re

from kfjob.common_types import JsonMapping
from kfjob.errors import Problem, SpecError
from kfjob.spec.api_objects import PYTORCHJOB

_IMPORT = "`kfjob import pytorchjob {file}` converts it to a job spec; `kfjob submit --template {file}` submits it as it is"
_FIRST_SPEC = "`kfjob init` writes a first job spec"
_MARKS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # keys that a format always has, what it is, and the hint
    (
        ("compute_environment", "distributed_type"),
        "a configuration of Accelerate",
        "`kfjob import accelerate {file} -- COMMAND`",
    ),
    (("zero_optimization",), "a configuration of DeepSpeed", "set `train.strategy: deepspeed` and `train.zero_stage`"),
)
_PYTORCHJOB_LINE = re.compile(rf"^[ \t]*[\"']?kind[\"']?:[ \t]*[\"']?{PYTORCHJOB}\b", re.MULTILINE)
_DOCUMENT = re.compile(r"^---(\s|$)", re.MULTILINE)


def find_foreign_format(data: JsonMapping, file: str | None) -> Problem | None:
    """Return the problem of a document of another program; None if it may be a job spec."""
    if "kind" in data and ("apiVersion" in data or "metadata" in data or "spec" in data):
        kind, name = data["kind"], _show_name(file)
        items = data.get("items")
        has_job = kind == PYTORCHJOB or (
            isinstance(items, list) and any(isinstance(item, dict) and item.get("kind") == PYTORCHJOB for item in items)
        )
        title = f"this is a Kubernetes object of the kind `{kind}`, not a job spec"
        return Problem(title=title, path="kind", file=file, hint=_IMPORT.format(file=name) if has_job else _FIRST_SPEC)
    if "name" in data:
        return None
    for keys, format_name, hint in _MARKS:
        if all(key in data for key in keys):
            title = f"this is {format_name}, not a job spec"
            return Problem(title=title, path=keys[0], file=file, hint=hint.format(file=_show_name(file)))
    return None


def explain_documents(text: str, file: str | None) -> SpecError | None:
    """Return the error for a text that cannot be parsed as one document because it is a manifest of several objects."""
    match = _PYTORCHJOB_LINE.search(text)
    if not match or not _DOCUMENT.search(text):
        return None
    line = text.count("\n", 0, match.start()) + 1
    title = "these are Kubernetes objects with a PyTorchJob, not a job spec"
    return SpecError([Problem(title=title, file=file, line=line, column=1, hint=_IMPORT.format(file=_show_name(file)))])


def _show_name(file: str | None) -> str:
    return file if file and not file.startswith("<") else "FILE"
