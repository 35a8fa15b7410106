"""Words that depend on a number or a list, and words in one spelling."""

from __future__ import annotations

import re
from collections.abc import Iterable


def plural(count: int, noun: str, several: str = "") -> str:
    """Return the count with its noun: `1 pod`, `2 pods`; `several` is the plural of a noun that does not take an `s`."""
    return f"{count} {noun}" if count == 1 else f"{count} {several or noun + 's'}"


def join_names(names: Iterable[str], *, limit: int = 5, empty: str = "none") -> str:
    """Return names for a message: at most `limit` of them, then how many more there are; `empty` stands for no name."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more if listed else empty


def snake_case(text: str) -> str:
    """Return a word in one spelling: `If-Not-Present`, `IfNotPresent`, `if not present` and `if/not.present` are equal."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[-\s./]+", "_", text.strip()).lower().strip("_")
