"""Secrets with something in them that a terminal does not show."""

from __future__ import annotations

from kfjob.base.printable import clean_text

PASSWORD = "tomatosoup10"  # noqa: S105 - nobody's
TOKEN = "hf_" + "aB1" * 12
DISGUISES = (
    *("\x1b[0m", "\x1b[1;31m", "\x9b0m", "\x1b]0;title\x07", "\x1b]8;;https://x\x1b\\", "\x1bP1q\x1b\\", "\x1b(B"),
    *("\x00", "\x01", "\x07", "\x08", "\x1c", "\x7f", "\x80", "\u200e", "\u202a", "\u202e", "\u2066", "\u2069"),
)
"""Terminal sequences, control characters, direction marks."""


def disguise(text: str, mark: str) -> str:
    """Return the text with a mark within each of its words, at every third character."""
    return "".join(f"{character}{mark}" if index % 3 == 1 else character for index, character in enumerate(text))


def shows_secret(text: str) -> bool:
    """Return whether a reader sees a part of a secret."""
    plain = clean_text(text)
    return any(part in plain for part in ("tomatos", "atosoup", "osoup10", "aB1aB1", "B1aB1a"))
