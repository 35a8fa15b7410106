"""A `progress:` pattern for lines that are not read: the numbers whose names are known, else the numbers that change."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kfjob.joblog.lines.meanings import Quantity, find_meaning, split_name
from kfjob.joblog.lines.prefixes import find_message
from kfjob.joblog.progress.exact_formats import custom_format

STEP, LOSS = r"(?P<step>\d+)", r"(?P<loss>[-+.\w]*\w)"
NUMBER = re.compile(r"(?<![\d.])[-+]?(?:\d+\.?\d*|\.\d+|(?<!\w)(?i:nan|inf(?:inity)?))(?:[eE][-+]?\d+)?(?![\w.]*\w)")
_NAME = re.compile(r"(?<!\w)([^\W\d][\w/.-]{0,40})([^\w\n]{1,8})\Z")
"""The name before a number, and what separates them."""
_TOTAL = re.compile(r"\s*(?:/|of)\s*\d+\b")


def suggest_pattern(lines: Sequence[str]) -> str | None:
    """Return a pattern that reads these lines of one layout, oldest first; None if none of the simple ones does.

    A number whose name says so is the step or the loss. Where no name says it, the step is the whole number that grows from
    the first line to the last, and the loss is the first fraction that changes.
    """
    line, numbers = lines[-1], _find_numbers(lines[-1])
    step, loss = (_find_named(line, numbers, quantity) for quantity in (Quantity.STEP, Quantity.LOSS))
    if step is None:
        changed = [
            (before[0], number)
            for before, number in zip(_find_numbers(lines[0]), numbers, strict=False)
            if before[0] != number[0] and number is not loss
        ]
        step = next((number for before, number in changed if _grows(before, number[0])), None)
        loss = loss or next((number for before, number in changed if not _is_count(before, number[0])), None)
    parts = [(step.start(), _describe(line, step, STEP) + _describe_total(line[step.end() :]))] if step else []
    parts += [(loss.start(), _describe(line, loss, LOSS))] if loss else []
    if not parts:
        return None
    pattern = ".*?".join(text for _, text in sorted(parts))
    readings = [custom_format(pattern)(text) for text in lines]
    newest = readings[-1]
    is_right = newest is not None and newest.step == (int(step[0]) if step else None)
    return pattern if is_right and all(readings) else None


def _find_numbers(line: str) -> list[re.Match[str]]:
    """Return the numbers behind the prefix of a logger."""
    message = find_message(line).text
    return list(NUMBER.finditer(line, max(line.rfind(message), 0)))


def _find_named(line: str, numbers: Sequence[re.Match[str]], quantity: Quantity) -> re.Match[str] | None:
    """Return the first number whose name means the quantity."""
    for number in numbers:
        name = _NAME.search(line[: number.start()])
        meaning = find_meaning(split_name(name[1])) if name else None
        is_possible = quantity is not Quantity.STEP or _is_count(number[0])
        if meaning and meaning.quantity is quantity and is_possible:
            return number
    return None


def _grows(before: str, number: str) -> bool:
    return _is_count(before, number) and int(number) > int(before)


def _is_count(*numbers: str) -> bool:
    return all(number.isdecimal() for number in numbers)


def _describe_total(rest: str) -> str:
    """Return the pattern of the last step, which is written as in `3/60` or `3 of 60`; "" without one."""
    return r"\s*(?:/|of)\s*(?P<total>\d+)" if _TOTAL.match(rest) else ""


def _describe(line: str, number: re.Match[str], group: str) -> str:
    """Return the group after the name before the number, or after the beginning of the line."""
    before = line[: number.start()]
    if (name := _NAME.search(before)) and not re.search(r"\d", name[1]):  # a digit may change from line to line
        return rf"{re.escape(name[1])}\W+?{group}"
    if letters := re.search(r"(?<![^\W\d])[^\W\d]+\Z", before):
        return re.escape(letters[0]) + group
    return rf"^\W*{group}" if not before.strip(" \t|[(#<") else rf"\W{group}"
