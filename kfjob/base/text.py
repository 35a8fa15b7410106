"""Figures with their significant digits, words for numbers, lists and exit codes, similar names, and impossible characters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import islice
from signal import Signals

_MIN_FIXED, _MAX_FIXED = 0.1, 1e6
"""Between these, decimals show the digits that count."""
SIGNAL_BASE = 128
"""A container whose process a signal ended has this exit code plus the signal's number."""
_THOUSAND = 1000
_MIN_DIGITS, _MAX_DECIMALS = 2, 20
"""Digits that a small number keeps at least, and decimals that it may have for that."""
IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
"""A character that no environment variable, file or Kubernetes object can hold: NUL, or half of a surrogate pair."""
_MAX_COMPARED = 1000
"""Names that are compared with a misspelt one: 10,000 long ones would take 20 s."""
NO_HOLDER = "no program, file or Kubernetes object can hold it"


def format_figure(value: float, digits: int = 4, *, fixed: bool = False) -> str:
    """Return `35.1`, `237,000` or `1e-05`: the digits that count, however small the figure is.

    `fixed`: that many decimals for figures that change from line to line, as `4.2104`, where they show the digits that count.
    """
    if fixed and _MIN_FIXED <= abs(value) < _MAX_FIXED:
        return f"{value:.{digits}f}"
    return f"{value:,.0f}" if abs(value) >= _THOUSAND and not fixed else f"{value:.{digits}g}"


def describe_exit(code: int) -> str:
    """Return `exit code 1`, or `SIGKILL (exit code 137)` for a container whose process a signal ended."""
    number = code - SIGNAL_BASE
    return f"{Signals(number).name} (exit code {code})" if number in set(Signals) else f"exit code {code}"


def format_decimal(value: float, decimals: int) -> str:
    """Return the number with these decimals and without an exponent; a small number has more of them."""
    if value and math.isfinite(value):
        needed = _MIN_DIGITS - 1 - math.floor(math.log10(abs(value)))
        decimals = max(decimals, min(needed, _MAX_DECIMALS))
    return f"{value:.{decimals}f}"


def is_whole(text: str, *, digits: int = 9) -> bool:
    """Return whether a text is a whole number of at most this many digits: Python refuses to convert one of some thousand."""
    return text.isdecimal() and len(text) <= digits


def plural(count: int, noun: str, several: str = "") -> str:
    """Return the count with its noun: `1 pod`, `2 pods`; `several` is the plural of a noun that does not take an `s`."""
    return f"{count} {noun}" if count == 1 else f"{count} {several or noun + 's'}"


def join_names(names: Iterable[str], *, limit: int = 5, empty: str = "none") -> str:
    """Return names for a message: at most `limit` of them, then how many more there are; `empty` stands for no name."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more if listed else empty


def join_lines(text: str) -> str:
    """Return a text of others in one line: a line break in it could pass for a line of kfjob's own output."""
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def snake_case(text: str) -> str:
    """Return a word in one spelling: `If-Not-Present`, `IfNotPresent`, `if not present` and `if/not.present` are equal."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[-\s./]+", "_", text.strip()).lower().strip("_")


def describe_impossible(character: str) -> str:
    """Return the name of an impossible character for a message."""
    return "the character NUL" if character == "\0" else "half of a surrogate pair"


def find_similar(word: str, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the name that is most like a misspelt word; None if none is. `cutoff` is that of `difflib`."""
    from difflib import get_close_matches  # a command without a mistake needs none

    return next(iter(get_close_matches(word, [*islice(names, _MAX_COMPARED)], n=1, cutoff=cutoff)), None)
