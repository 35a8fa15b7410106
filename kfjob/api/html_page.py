"""Pages of the Python API."""

from __future__ import annotations

from html import escape
from pathlib import Path


class HtmlPage(str):
    """A text that is an HTML page. In a shell it shows its size, and in a notebook the page."""

    __slots__ = ()

    def save(self, path: Path | str) -> Path:
        """Write the page to a file, and return the file's path."""
        file = Path(path)
        file.write_text(self, encoding="utf-8")
        return file

    def __repr__(self) -> str:
        """Return one line instead of the page."""
        return f'<HtmlPage of {len(self) / 1024:.0f} KiB; `page.save("report.html")` writes it>'

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a frame of its own."""
        return f'<iframe srcdoc="{escape(self)}" width="100%" height="600"></iframe>'
