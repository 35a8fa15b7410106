"""Recognise files that a user gives in place of a job spec, and say what a spec is and which command reads them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import Problem, SpecError
from kfjob.base.text import find_similar, join_names
from kfjob.objects.api_objects import is_list
from kfjob.shell.commands import suggest_start

_JOB_KIND = "PyTorchJob"
"""The kind of the jobs that `kfjob import` reads."""
_IMPORT = "`kfjob import pytorchjob {file}` converts it to a job spec; `kfjob submit --template {file}` submits it as it is"
_IMPORT_INNER = "`kfjob import pytorchjob {file}` converts its job to a job spec"
_KINDS_BY_SUFFIX = {
    ".py": "a Python script", ".ipynb": "a notebook", ".toml": "a TOML file", ".md": "a page of Markdown",
    **dict.fromkeys((".sh", ".bash", ".slurm", ".sbatch"), "a shell script"),
}  # fmt: skip
_KINDS_BY_FIRST_LINE = ((re.compile(r"\A#!.*python"), "a Python script"), (re.compile(r"\A#!.*sh\b"), "a shell script"))
_YAML_SUFFIXES = (".yaml", ".yml", ".json")
_SIMILAR = 0.75
"""How similar a key is to a field at least, if it may be meant."""
_MARKS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # keys that a format always has, what it is, and the hint
    (
        ("compute_environment", "distributed_type"),
        "a configuration of Accelerate",
        "`kfjob import accelerate {file} -- COMMAND`",
    ),
    (("zero_optimization",), "a configuration of DeepSpeed", "set `train.strategy: deepspeed` and `train.zero_stage`"),
)
_PYTORCHJOB_LINE = rf"(?m)^[ \t]*[\"']?kind[\"']?:[ \t]*[\"']?\w*{_JOB_KIND}\b"
_DOCUMENT = r"(?m)^---(\s|$)"


def describe_spec(file: str = "") -> str:
    """Return what a job spec is, for the hint of an error about something else, such as a script in a file."""
    run = f"kfjob run -- {suggest_start(file) or 'COMMAND'}"
    return f"a spec is YAML with a job's name, nodes and command: `kfjob init` writes one, `{run}` needs none"


def find_other_file(text: str, file: str | None) -> SpecError | None:
    """Return the error for a script or another file that no YAML reader has to look at; None if it may be a job spec."""
    name, line = file or "", text.partition("\n")[0]
    kind = _KINDS_BY_SUFFIX.get(f".{name.rpartition('.')[2]}" if "." in name else "")
    kind = kind or next((kind for pattern, kind in _KINDS_BY_FIRST_LINE if pattern.match(line)), None)
    return SpecError([Problem(title=f"this is {kind}, not a job spec", file=file, hint=describe_spec(name))]) if kind else None


def explain_syntax(err: SpecError, file: str | None) -> SpecError:
    """Return the error for a text that is not YAML. A file without a name of YAML is probably something else."""
    if not file or file.startswith("<") or file.endswith(_YAML_SUFFIXES):
        return err
    first = err.problems[0]
    return SpecError([replace(first, title=f"this is not a job spec: {first.title}", hint=describe_spec())])


def find_foreign_fields(data: JsonMapping, fields: Collection[str], file: str | None) -> Problem | None:
    """Return the problem of a mapping of which no key is a field of a job spec, or is written like one."""
    if not data or any(key in fields or find_similar(str(key), fields, cutoff=_SIMILAR) for key in data):
        return None
    detail = f"its keys are {join_names(str(key) for key in data)}"
    return Problem(title="this is not a job spec: it has none of its fields", file=file, detail=detail, hint=describe_spec())


def find_foreign_format(data: JsonMapping, file: str | None) -> Problem | None:
    """Return the problem of a document of another program; None if it may be a job spec."""
    if "kind" in data and ("apiVersion" in data or "metadata" in data or "spec" in data):
        kind, name = data["kind"], _show_name(file)
        items = data["items"] if is_list(data) else [data]
        hint = describe_spec()
        if any(isinstance(item, dict) and item.get("kind") == _JOB_KIND for item in items):
            hint = _IMPORT.format(file=name)
        elif _may_hold_job(data):
            hint = _IMPORT_INNER.format(file=name)
        title = f"this is a Kubernetes object of the kind `{kind}`, not a job spec"
        return Problem(title=title, path="kind", file=file, hint=hint)
    if "name" in data:
        return None
    for keys, format_name, hint in _MARKS:
        if all(key in data for key in keys):
            title = f"this is {format_name}, not a job spec"
            return Problem(title=title, path=keys[0], file=file, hint=hint.format(file=_show_name(file)))
    return None


def _may_hold_job(value: Any) -> bool:
    """Return whether a value names a PyTorchJob: as the kind of an object inside it, or in a text."""
    if isinstance(value, dict):
        return any(_may_hold_job(item) for item in value.values())
    if isinstance(value, list):
        return any(_may_hold_job(item) for item in value)
    return isinstance(value, str) and _JOB_KIND in value


_OTHER_LANGUAGE = r"\{\{|\{%"
_VARIABLE = r"(?m)^[ \t]*(?:-[ \t]+)?(?!value\b)[\w./-]+:[ \t]*[\"']?[^\s\"'#]*(\$\{?[A-Za-z_]\w*\}?)"
"""A field of an object, other than the value of a variable, that is a reference; shells read commands and values."""


UNFILLED = "this is a template with variables, not a manifest"


def describe_filling(file: str | None) -> str:
    """Return the commands that read a template with variables."""
    name = _show_name(file)
    return (
        f"`kfjob submit --template {name} --env-file FILE` fills it in and submits it as it is; "
        f"`kfjob render --template {name} --env-file FILE | kfjob import pytorchjob -` makes a job spec"
    )


def find_language_problem(
    text: str, lines: Iterable[int | None], *, file: str | None, expected: str = "a manifest"
) -> Problem | None:
    """Return the problem of a template of Helm, Jinja or Go, if one of the lines that an error names has its braces.

    Braces in other lines are not the reason of the error: `docker ps --format '{{.ID}}'`. `expected` says what the text is
    not: `a job spec`.
    """
    parts = text.split("\n")
    for line in lines:
        if line and line <= len(parts) and re.search(_OTHER_LANGUAGE, parts[line - 1]):
            title = f"this is a template of Helm, Jinja or Go, not {expected}"
            return Problem(title=title, file=file, line=line, hint="render it first, for example with `helm template CHART`")
    return None


def find_template_problem(text: str, problems: Iterable[Problem], file: str | None) -> Problem | None:
    """Return the problem of a text with other problems that is a template and no manifest; None if it may be a manifest."""
    if problem := find_language_problem(text, (problem.line for problem in problems), file=file):
        return problem
    if match := re.search(_VARIABLE, text):
        hint = describe_filling(file)
        line, detail = text.count("\n", 0, match.start(1)) + 1, f"for example `{match[1]}`"
        return Problem(title=UNFILLED, file=file, line=line, detail=detail, hint=hint)
    return None


def explain_documents(text: str, file: str | None) -> SpecError | None:
    """Return the error for a text that cannot be parsed as one document because it is a manifest of several objects."""
    match = re.search(_PYTORCHJOB_LINE, text)
    if not match or not re.search(_DOCUMENT, text):
        return None
    line = text.count("\n", 0, match.start()) + 1
    title = "these are Kubernetes objects with a PyTorchJob, not a job spec"
    return SpecError([Problem(title=title, file=file, line=line, column=1, hint=_IMPORT.format(file=_show_name(file)))])


def _show_name(file: str | None) -> str:
    return file if file and not file.startswith("<") else "FILE"
