"""The pages of docs/reference are up to date and complete. `scripts/docs build` makes those of commands and Python names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import zip_longest

import pytest

import kfjob
from docs.generate import FOLDER, NAMES, format_page
from kfjob import aio
from kfjob.cli.commands import COMMANDS
from kfjob.spec.job import JobSpec
from kfjob.trainspec.train_spec import TrainSpec

PYTHON = (FOLDER / "python.md").read_text(encoding="utf-8")
DOCUMENTED = re.findall(r"^::: (\S+)\.(\w+)$", PYTHON, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_page_is_up_to_date(name: str):
    assert (FOLDER / name).read_text(encoding="utf-8") == format_page(name), "python -m docs.generate"


def undocumented_fields(cls: type) -> Iterator[str]:
    """Yield the public fields with neither a comment beside them nor a docstring below them."""
    lines = inspect.getsource(cls).splitlines()
    body = ast.parse("\n".join(lines)).body[0].body  # type: ignore[attr-defined]
    for node, after in zip_longest(body, body[1:]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            has_comment = "  # " in lines[(node.end_lineno or node.lineno) - 1]
            if not has_comment and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
                yield node.target.id


def test_every_public_name_and_field_has_a_meaning():
    values = [getattr(import_module(module), name) for module, name in DOCUMENTED]
    assert [value.__name__ for value in values if not inspect.getdoc(value)] == []
    structs = [value for value in values if hasattr(value, "__struct_fields__")]
    assert len(structs) > 15
    assert [f"{cls.__name__}.{name}" for cls in structs for name in undocumented_fields(cls)] == []


def test_pages_are_complete():
    spec = format_page("spec.md")
    assert all(f"| `{field}` |" in spec for field in [*JobSpec.model_fields, *TrainSpec.model_fields])
    names = {name for _, name in DOCUMENTED} | set(re.findall(r"`(\w+)`", PYTHON))
    assert set(dir(kfjob)) - {"__version__"} - names == set()
    assert {name for name, value in vars(aio).items() if inspect.iscoroutinefunction(value) and name[0] != "_"} <= names


def test_the_page_of_commands_needs_no_list():
    page = (FOLDER / "commands.md").read_text(encoding="utf-8")
    assert "::: mkdocs-click\n    :module: kfjob.cli.commands\n" in page
    assert all(import_module(module) for module, _ in COMMANDS.values())
