"""Every backend has a kind, and no code outside of the choice of a backend asks for its name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import kfjob
from kfjob.backend_kinds import KINDS, BackendName

ROOT = Path(kfjob.__file__).parent
CHOOSES = {
    "api/target.py",
    "api/local_data.py",
    "api/doctor/machine.py",
    "api/doctor/examine.py",
    "cli/submit.py",
}
"""The modules that read the name that a user has written."""


def test_every_backend_has_a_kind():
    assert set(KINDS) == set(get_args(BackendName))


def test_behaviour_depends_on_capabilities_and_not_on_names():
    names = set(get_args(BackendName))
    users = {
        str(file.relative_to(ROOT))
        for file in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        if any(isinstance(side, ast.Constant) and side.value in names for side in (node.left, *node.comparators))
    }
    assert users == CHOOSES
