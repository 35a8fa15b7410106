"""Secrets with something invisible in them."""

from __future__ import annotations

from kfjob.redaction.forms import fold_text

PASSWORD = "tomatosoup10"  # noqa: S105 - nobody's
TOKEN = "hf_" + "aB1" * 12
SPACES = ("\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029")
"""Characters that become a space in clean text."""
DISGUISES = (
    *("\x1b[0m", "\x1b[1;31m", "\x9b0m", "\x1b]0;title\x07", "\x1b]8;;https://x\x1b\\", "\x1bP1q\x1b\\", "\x1b(B"),
    *("\x00", "\x01", "\x07", "\x08", "\x1c", "\x7f", "\x80", "\x90", "\x9d", *SPACES),
    *("\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u061c", "\u180e", "\u3164", "\u115f", "\ufffd"),
    *("\u200e", "\u202a", "\u202e", "\u2066", "\u2069", "\u0301", "\u0336", "\u20dd", "\ufe0f", "\U000e0041", "\ue000"),
)
"""Terminal sequences, control characters, invisible and blank characters, direction marks, accents."""


def disguise(text: str, mark: str) -> str:
    """Return the text with a mark within each of its words, at every third character."""
    return "".join(f"{character}{mark}" if index % 3 == 1 else character for index, character in enumerate(text))


def full_width(text: str) -> str:
    """Return the text in the wide letters of East Asian fonts."""
    return "".join(chr(ord(character) + 0xFEE0) if "!" <= character <= "~" else character for character in text)


def shows_secret(text: str) -> bool:
    """Return whether a reader sees a part of a secret."""
    plain = fold_text(text)
    return any(part in plain for part in ("tomatos", "atosoup", "osoup10", "aB1aB1", "B1aB1a"))
