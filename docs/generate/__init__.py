"""The generators of the pages in docs/reference: `python -m docs.generate` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.generate import commands, diagnose, lint, progress, python, spec, trainer

FOLDER = Path(__file__).parents[1] / "reference"
_FORMATS: dict[str, Callable[[], str]] = {
    "commands.md": commands.format_page,
    "diagnose.md": diagnose.format_page,
    "lint.md": lint.format_page,
    "progress.md": progress.format_page,
    "python.md": python.format_page,
    "spec.md": spec.format_page,
    "trainer-arguments.md": trainer.format_page,
}
NAMES = tuple(_FORMATS)
"""The files of the pages."""


def format_page(name: str) -> str:
    """Return a page as Markdown, with a note below its title that says where it comes from."""
    title, _, text = _FORMATS[name]().partition("\n")
    return f"{title}\n\n<!-- written by: python -m docs.generate -->\n{text}"
