"""The commands of an example's README: the last column of its table is what users type now."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def read_lines(example: str) -> list[str]:
    """Return the commands in the last column of the README of an example, in their order."""
    text = (ROOT / "examples" / example / "README.md").read_text(encoding="utf-8")
    cells = [line.strip(" |").rpartition(" | ")[2] for line in text.splitlines() if line.startswith("| ")]
    return [match[1] for cell in cells if (match := re.fullmatch(r"`([^`]+)`", cell.strip()))]
