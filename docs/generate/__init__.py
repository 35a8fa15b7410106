"""The generators of pages in docs/reference, which are made from kfjob's tables: `python -m docs.generate` writes them.

No library makes these pages: `spec` and `trainer-arguments` show defaults and their reasons, `lint` and `diagnose` list rules,
and `progress` lists words and limits. mkdocs-click and mkdocstrings make the pages of commands and Python names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.generate import diagnose, lint, progress, spec, trainer

FOLDER = Path(__file__).parents[1] / "reference"
_FORMATS: dict[str, Callable[[], str]] = {
    "diagnose.md": diagnose.format_page,
    "lint.md": lint.format_page,
    "progress.md": progress.format_page,
    "spec.md": spec.format_page,
    "trainer-arguments.md": trainer.format_page,
}
NAMES = tuple(_FORMATS)
"""The files of the pages."""


def format_page(name: str) -> str:
    """Return a page as Markdown, with a note below its title that says where it comes from."""
    title, _, text = _FORMATS[name]().partition("\n")
    return f"{title}\n\n<!-- written by: python -m docs.generate -->\n{text}"
