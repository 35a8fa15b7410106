"""The generated pages of docs/reference are up to date."""

from __future__ import annotations

from pathlib import Path

import kfjob
from kfjob.cli import python_reference as python
from kfjob.cli import reference as commands
from kfjob.cli.commands import COMMANDS
from kfjob.spec import reference as spec
from kfjob.spec.job import JobSpec
from kfjob.trainspec.train_spec import TrainSpec

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def test_spec_page_is_up_to_date():
    page = (PAGES / "spec.md").read_text(encoding="utf-8")
    assert page == spec.format_page(), "python -m kfjob.spec.reference > docs/reference/spec.md"
    assert all(f"| `{field}` |" in page for field in [*JobSpec.model_fields, *TrainSpec.model_fields])


def test_commands_page_is_up_to_date():
    page = (PAGES / "commands.md").read_text(encoding="utf-8")
    assert page == commands.markdown(), "python -m kfjob.cli.reference > docs/reference/commands.md"
    assert all(f"\n## kfjob {name}\n" in page for name in COMMANDS)


def test_python_page_is_up_to_date():
    page = (PAGES / "python.md").read_text(encoding="utf-8")
    assert page == python.format_page(), "python -m kfjob.cli.python_reference > docs/reference/python.md"
    assert all(f"`{name}`" in page or f"### {name}\n" in page for name in dir(kfjob) if name not in {"__version__", "Run"})
