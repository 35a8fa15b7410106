"""Paths of fields inside a spec: `("volumes", 0, "name")`, shown as `volumes.0.name`."""

from __future__ import annotations

Path = tuple[str | int, ...]


def join_path(path: Path) -> str:
    """Return a path as users write it: `volumes.0.name`."""
    return ".".join(str(part) for part in path)


def parse_path(text: str) -> Path:
    """Return the path that a text such as `volumes.0.name` stands for."""
    return tuple(int(part) if part.isdecimal() else part for part in text.split(".")) if text else ()
