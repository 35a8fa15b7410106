"""The specs of pages and examples are valid, and links lead to files. Commands in pages are checked in test_hints.py."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from kfjob.cli.commands import COMMANDS
from kfjob.source.spec_text import load_spec

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/**/*.yaml"))
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def specs() -> list[tuple[str, str]]:
    """Every spec in a page, which begins with its name."""
    fence = re.compile(r"```yaml\n(name: .*?)```", re.DOTALL)
    return [(page.name, spec) for page in PAGES for spec in fence.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "spec"), specs(), ids=lambda value: value.partition("\n")[0])
def test_the_specs_of_pages_are_valid(page: str, spec: str):
    assert load_spec(spec).spec.name


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_specs_of_the_examples_are_valid_and_say_what_they_show(file: Path):
    text = file.read_text(encoding="utf-8")
    assert load_spec(text).spec.name
    assert re.match(r"# [A-Z].{30,}", text.splitlines()[0])


def test_the_readme_has_one_spec():
    assert [page for page, _ in specs()].count("README.md") == 1


def test_every_link_leads_to_a_file():
    lost = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert lost == []


def test_the_readme_links_every_guide_in_125_lines():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in ROOT.glob("docs/guides/*.md") if f"(docs/guides/{page.name})" not in text] == []
    assert len(text.splitlines()) <= 125


@pytest.mark.parametrize("page", ["docs/guides/data.md", "docs/tutorial.md"])
def test_general_pages_show_the_way_from_text_to_a_model(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "kfjob-tokenize" in text
    assert "kfjob-export" in text


def test_every_command_has_its_module():
    assert all(import_module(module) for module, _ in COMMANDS.values())
