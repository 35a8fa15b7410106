"""Lines that name their figures with single letters, such as `E01 B00020 L2.48`.

A letter alone may mean anything, so the whole line must have this shape, with a counter, and a loss that is no whole number.
"""

from __future__ import annotations

import re

from kfjob.joblog.lines.vocabulary import LETTERS

_GROUP = r"[A-Za-z]{1,4}[:=]?[-+]?\d[\d.]*+(?:[eE][-+]?\d++)?[%a-z]{0,2}"
_LINE = re.compile(rf"[\[(]?{_GROUP}(?:[ \t,|;/\])(-]++{_GROUP}){{1,15}}[ \t)\]]*")
_PAIR = re.compile(r"(?<![A-Za-z])([A-Za-z]{1,4})[:=]?(?=[-+]?\d)")
_LOSS = re.compile(r"(?<![A-Za-z])[Ll][:=]?-?\d+\.\d")


def expand_letters(text: str) -> str:
    """Return the line with names in place of its letters; another line as it is. The time is linear in the length."""
    if not _LINE.fullmatch(text) or not _LOSS.search(text):
        return text
    names = [match[1].lower() for match in _PAIR.finditer(text)]
    if not any(name in LETTERS and name != "l" for name in names):
        return text
    return _PAIR.sub(lambda match: f"{LETTERS.get(match[1].lower(), match[1])} ", text)
