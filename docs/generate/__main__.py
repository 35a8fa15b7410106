"""Write all pages of docs/reference that are generated."""

from __future__ import annotations

from docs.generate import FOLDER, NAMES, format_page

for page in NAMES:
    (FOLDER / page).write_text(format_page(page), encoding="utf-8")
