"""Make text of others safe to show: without terminal sequences, control characters and direction marks. Pure."""

from __future__ import annotations

import math
import re
from typing import Any

_STRINGS = (
    r"\x1b\][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # operating system command: titles, links, the clipboard
    r"|\x1b[PX^_][^\x1b\x9c\n]*(?:\x1b\\|\x9c)"  # device control and other strings
    r"|(?:\x1b\[|\x9b)[0-?]{0,40}[ -/]{0,8}[@-~]?"  # control sequences: cursor, screen
)
_SEQUENCE = _STRINGS + r"|\x1b[ -/]{0,8}[0-~]?"
"""Sequences that act on a terminal."""
NARROW_SEQUENCE = _STRINGS + r"|\x1b(?:[()*+#%][0-9A-Za-z@=<>])?"
"""As `_SEQUENCE`, but an escape character alone takes no letter with it: the letter may belong to the name of a secret."""
_COLOUR = r"(\x1b\[[0-9;:]{0,40}m)"
_LINE_END = r"(?<!\r)\r+(?=\n|\Z)"
_SPACE = "[\r\x0b\x0c\x85\u2028\u2029]+"
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff{_BIDI}]")
"""Every character that `clean_text` removes or replaces; newlines and tabs stay."""


def is_clean(text: str) -> bool:
    """Return whether `clean_text` leaves the text as it is."""
    return _UNSAFE.search(text) is None


def clean_text(text: str, *, keep_colours: bool = False, mark: str = "", space: str = " ") -> str:
    """Return the text without terminal sequences, control characters and direction marks; newlines and tabs stay.

    `keep_colours` keeps the sequences that set colours (SGR). `mark` replaces each character that is removed alone, and `space`
    those that move the cursor.
    """
    if is_clean(text):
        return text
    if keep_colours:
        parts = re.split(_COLOUR, text)
        return "".join(part if index % 2 else clean_text(part, mark=mark, space=space) for index, part in enumerate(parts))
    text = re.sub(_SPACE, space, re.sub(_LINE_END, "", re.sub(_SEQUENCE, "", text)))
    return _UNSAFE.sub(mark, text)


def encode_json(value: Any, *, indent: int | None = None, plain_ascii: bool = True) -> str:
    """Return JSON in which every character that `clean_text` would remove is escaped.

    JSON has no NaN and no infinity (RFC 8259, section 6): they become null.
    """
    import json

    try:
        text = json.dumps(value, indent=indent, ensure_ascii=plain_ascii, allow_nan=False)
    except ValueError:
        text = json.dumps(_drop_non_finite(value), indent=indent, ensure_ascii=plain_ascii, allow_nan=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _drop_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_drop_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
