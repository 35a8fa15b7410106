"""Text that a program quotes, such as a sample of its data: an error in it is no error of the program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

_QUOTES = ('"""', "```", '"', "'")
_OPENING = re.compile(r"(?:^|[\s:=(\[{,])(\"\"\"|```|['\"])(?=\S|$)")
_LABEL = re.compile(
    r"(?i)\b(?:samples?|prompts?|texts?|completions?|generated|generations?|outputs?|inputs?|questions?|answers?|responses?"
    r"|contents?|instructions?|predictions?|targets?|labels?)[\"']?\s{0,3}(?:#?\d{1,9})?\s{0,3}[:=]\s{0,3}[\[(]?[urb]?['\"]"
)
_LABELLED_LINE = re.compile(
    r"(?i)\W{0,3}(?:(?:user|input|test|sample) )?(?:samples?|prompts?|completions?|generations?|questions?|answers?|responses?"
    r"|instructions?|targets?|user|assistant)[\"']?(?: ?#?\d{1,9})? ?[:=] "
)
_SINGLE = re.compile(r"(?<!\w)'|'(?!\w)")
MAX_DISTANCE = 40
"""Lines before an error in which a quotation that holds it may begin."""


def has_label(text: str) -> bool:
    """Return whether the text before an error names a sample and opens its quotation, directly or later in its line."""
    if _LABEL.search(text) is not None:
        return True
    return _LABELLED_LINE.match(text) is not None and any(_count(text, quote) % 2 for quote in ('"', "'", "`"))


def is_quoted(before: Iterable[str], lines: Sequence[str]) -> bool:
    """Return whether the lines are part of a quotation that begins in the lines before them, the newest first."""
    for text in before:
        if quote := _find_open_quote(text):
            return any(_closes(line, quote) for line in lines)
    return False


@lru_cache(maxsize=256)  # each line is looked at for every error in the lines after it
def _find_open_quote(text: str) -> str:
    """Return the quote of a quotation that begins in the line and does not end in it; "" without one."""
    opened = {match[1] for match in _OPENING.finditer(text)}
    return next((quote for quote in _QUOTES if quote in opened and _count(text, quote) % 2), "")


def _closes(text: str, quote: str) -> bool:
    return text.rstrip(" ,)]}").endswith(quote) and _count(text, quote) % 2 == 1


def _count(text: str, quote: str) -> int:
    """Return how often the quote occurs; an apostrophe within a word does not count."""
    return len(_SINGLE.findall(text)) if quote == "'" else text.count(quote)
