"""This module splits a line into words, numbers and punctuation. Dates, clocks, addresses and versions have no value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_LENGTH = 4096
"""Characters of a line that may be progress; a longer line is a dump."""

_TOKEN = re.compile(
    r"(?P<space>[ \t\u00a0]++)"
    r"|(?P<junk>"
    r"\d{4}[-/]\d\d?[-/]\d\d?(?>(?:[T ,_-]{1,2}\d\d?:\d\d(?::\d\d)?(?:[.,]\d++)?Z?)?)(?!\d)"  # 2026-02-03 04:05:06,211
    r"|\d\d?[-/]\d\d?[-/]\d{2,4}(?!\d)"  # 02/03/2026
    r"|\d\d[-/]\d\d (?=\d\d:\d\d)"  # 02/03 04:05:06
    r"|\d++:\d\d(?::\d\d)*+(?:[.,]\d++)?(?!\d)"  # 0:11:11, 01:06<00:19
    r"|v?\d++(?>(?:\.\d++){2,})(?::\d++)?"  # 10.0.0.17:29500, 1.2.3
    r"|0[xX][0-9a-fA-F]++"
    r")"
    r"|(?P<decimal>(?:(?<=[:=])|(?<=[:=\w\]\)] ))[-+]?(?:0,\d++|\d++,(?:\d{4,}+|\d{1,2}+))(?![\d,.])"  # 0,1402
    r"(?:[eE][-+]?\d++)?)"
    r"|(?P<number>[-+](?i:nan|infinity|inf)(?!\w)|[-+]?(?:\d{1,3}(?>(?:,\d{3})+)(?!\d)(?:\.\d*+)?|\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?)"
    r"|(?P<word>[\u3041-\u30ff\u4e00-\u9fff\uac00-\ud7af]++|[^\W\d_][\w]*+(?>(?:(?:[/.@-](?=[^\W\d])|[@](?=\d))\w++)*)|_\w++|#(?!\w))"
    r"|(?P<mark>.)",
    re.DOTALL,
)
_ONE_GROUP = re.compile(r"[-+]?\d{1,3},\d{3}")
_FULL_WIDTH = str.maketrans("：，；（）［］｛｝／＝％｜、。│┃║→⇒", ":,;()[]{}/=%|,.|||>>")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}


class Token(NamedTuple):
    """One token with its position in the line."""

    kind: str  # space | junk | number | word | mark
    text: str
    start: int
    end: int


def split_tokens(text: str) -> list[Token]:
    """Return the tokens of the line's beginning. The time is linear in the length."""
    text = text[:MAX_LENGTH]
    return list(_iterate_tokens(text if text.isascii() else text.translate(_FULL_WIDTH)))


def _iterate_tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup or "mark", match.group()
        if kind == "decimal":
            kind, token = "number", token.replace(",", ".")
        elif kind == "word" and token.lower() in _NOT_FINITE:
            kind = "number"
        yield Token(kind, token, match.start(), match.end())


def parse_figure(text: str) -> float | None:
    """Return the number; None if it is too large for one, such as `1e999`."""
    special = _NOT_FINITE.get(text.lstrip("+-").lower())
    if special is not None:
        return -special if text.startswith("-") else special
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


def parse_decimal(text: str) -> float | None:
    """Return a number such as `2,345` as one with a decimal comma; None if it is none."""
    return float(text.replace(",", ".")) if _ONE_GROUP.fullmatch(text) else None


def is_whole(text: str) -> bool:
    """Return whether the number is printed as an integer."""
    return text.lstrip("+-").replace(",", "").isdigit()
