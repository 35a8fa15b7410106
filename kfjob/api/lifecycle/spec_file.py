"""The file that a launch was submitted from, and whether it has changed since."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kfjob.base.parsing import read_named_text

_DIGITS = 16


def record_file(path: Path, text: str) -> str:
    """Return what is recorded with a launch: the digest of the text, and the absolute path of its file."""
    return f"{_digest(text)} {path.absolute()}"


def find_changed_file(record: str) -> Path | None:
    """Return the file of a record if its text has changed; None if it has not, cannot be read, or if nothing is recorded."""
    digest, _, path = record.partition(" ")
    if not path:
        return None
    try:
        text = read_named_text(Path(path))
    except (OSError, ValueError):  # ValueError: it is too large now, or not UTF-8
        return None
    return Path(path) if _digest(text) != digest else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
