"""The literals that a pattern needs: each text that it matches contains at least one of them.

One search for the literals of all rules finds the few rules to try for a line, and most lines contain none.
"""

from __future__ import annotations

from collections.abc import Iterable
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MAX_FORMS = 16
"""Texts that one part of a pattern can have, such as `exit code` and `exit status`; with more, its parts are looked at."""

Forms = frozenset[str]
"""Texts of which one occurs in each match; one that contains "" says nothing."""
_NOTHING: Forms = frozenset({""})


def find_literals(pattern: str) -> tuple[str, ...]:
    """Return the literals of a pattern, the longest ones that can be found; () if it has none."""
    _, needed = _read(parser.parse(pattern))
    return () if "" in needed else tuple(sorted(needed))


def _read(parts: Iterable[tuple[Any, Any]]) -> tuple[Forms | None, Forms]:
    """Return all texts that the parts match, None if they are too many, and the texts of which each match contains one."""
    whole, run, needed = True, _NOTHING, _NOTHING
    for code, value in parts:
        exact, inner = _read_part(code, value)
        if exact is not None and len(run) * len(exact) <= MAX_FORMS:
            run = frozenset(before + after for before in run for after in exact)
        else:
            needed, run, whole = _choose(needed, run, inner), exact or _NOTHING, False
    return (run if whole else None), _choose(needed, run)


def _read_part(code: Any, value: Any) -> tuple[Forms | None, Forms]:
    """Return the same for one part."""
    if code is codes.SUBPATTERN:
        return _read(value[-1])
    if code is codes.BRANCH:
        branches = [_read(branch) for branch in value[1]]
        exact = [forms for forms, _ in branches if forms is not None]
        is_exact = len(exact) == len(branches) and sum(map(len, exact)) <= MAX_FORMS
        return (frozenset().union(*exact) if is_exact else None), frozenset().union(*(forms for _, forms in branches))
    if code in {codes.MAX_REPEAT, codes.MIN_REPEAT}:
        least, most, inner = value
        exact_once, needed = _read(inner)
        is_optional = (least, most) == (0, 1) and exact_once is not None
        return (_NOTHING.union(exact_once or ()) if is_optional else None), needed if least else _NOTHING
    forms = _read_character(code, value)
    return forms, forms or _NOTHING


def _read_character(code: Any, value: Any) -> Forms | None:
    """Return the characters that a letter, a class of few letters or an anchor can be; None for other characters."""
    if code is codes.AT:
        return _NOTHING
    if code is codes.LITERAL:
        return frozenset({chr(value)})
    if code is codes.IN and all(kind is codes.LITERAL for kind, _ in value):
        return frozenset(chr(letter) for _, letter in value)
    return None


def _choose(*alternatives: Forms) -> Forms:
    """Return the forms whose shortest text is longest; of equally good ones the fewest."""
    return max(alternatives, key=lambda forms: (min(map(len, forms)), -len(forms)))
