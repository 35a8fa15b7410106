"""The generated pages of docs/reference are up to date and complete."""

from __future__ import annotations

import pytest

import kfjob
from docs.generate import FOLDER, NAMES, format_page
from kfjob.cli.commands import COMMANDS
from kfjob.spec.job import JobSpec
from kfjob.trainspec.train_spec import TrainSpec


@pytest.mark.parametrize("name", NAMES)
def test_page_is_up_to_date(name: str):
    assert (FOLDER / name).read_text(encoding="utf-8") == format_page(name), "python -m docs.generate"


def test_pages_are_complete():
    assert all(f"| `{field}` |" in format_page("spec.md") for field in [*JobSpec.model_fields, *TrainSpec.model_fields])
    assert all(f"\n## kfjob {name}\n" in format_page("commands.md") for name in COMMANDS)
    page = format_page("python.md")
    assert all(f"`{name}`" in page or f"### {name}\n" in page for name in dir(kfjob) if name not in {"__version__", "Run"})
