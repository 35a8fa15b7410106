"""Every backend has a kind, and no code outside of the choice of a backend asks for its name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import get_args

import kfjob
from kfjob.base.capabilities import CAPABILITIES, BackendName, find_name

ROOT = Path(kfjob.__file__).parent
CHOOSES = {
    "api/target.py",
    "api/target_needs.py",
    "api/doctor/machine.py",
    "api/doctor/examine.py",
    "cli/submit.py",
}
"""The modules that read the name that a user has written."""


LISTS = (ast.Tuple, ast.List, ast.Set)


@cache
def walk_modules() -> list[tuple[str, ast.AST]]:
    """Return each comparison and each list in each module, with the module's path."""
    return [
        (str(file.relative_to(ROOT)), node)
        for file in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Compare, *LISTS))
    ]


def read_constants(node: ast.expr) -> set[object]:
    """Return a constant, or the constants in a tuple, list or set."""
    items = node.elts if isinstance(node, LISTS) else [node]
    return {item.value for item in items if isinstance(item, ast.Constant)}


def test_every_backend_has_capabilities():
    assert set(CAPABILITIES) == set(get_args(BackendName))


def test_behaviour_depends_on_capabilities_and_not_on_names():
    names = set(get_args(BackendName))
    users = {
        module
        for module, node in walk_modules()
        if isinstance(node, ast.Compare)
        if any(names & read_constants(side) for side in (node.left, *node.comparators))
    }
    assert users == CHOOSES


def test_only_the_table_of_capabilities_lists_the_names():
    names = set(get_args(BackendName))
    lists = {module for module, node in walk_modules() if isinstance(node, LISTS) and names <= read_constants(node)}
    assert lists == {"base/capabilities.py"}


def test_names_are_found():
    assert [find_name(name) for name in CAPABILITIES] == [*CAPABILITIES]
    assert find_name("slurm") is find_name(None) is None
