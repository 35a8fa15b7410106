"""Single lines: warnings, lines of loggers, and lines that say how the program goes on after an error."""

from __future__ import annotations

import re

from kfjob.base.parsing import ParseError, parse_json
from kfjob.base.patterns import Pattern
from kfjob.joblog.diagnose.engine.going_on import goes_on
from kfjob.joblog.lines.prefixes import Level, split_prefix
from kfjob.joblog.lines.vocabulary import MESSAGE_COUNTERS

_PYTHON_WARNING = Pattern(r"(?:\S+:\d+: |^)\w{0,40}Warning: |^[\w.-]{1,40}: [Ww]arning: ")
_INFORMATION = "NCCL INFO "
_OWN_LEVEL = ("NCCL WARN", "<warn>")
_BOUNDARY = re.compile(
    r"\s{0,4}\d{1,3}%\||[\w.-]{1,80}:\d+:\d+ \[\d+\] |"
    rf"(?i:(?:{'|'.join(MESSAGE_COUNTERS)})\b\W{{0,3}}\d)|"
    r"={8,}|-{8,}|\*{8,}|\{'|usage: "
)
_HELP = re.compile(
    r"(?:mpirun|mpiexec|orterun|prterun|prun|ORTE|PRTE|PMIx) (?:was|has|detected|noticed) |Primary job +terminated "
)
_STACK = re.compile(r'"py_callstack": "((?:[^"\\]|\\.)*)')


def is_warning(text: str) -> bool:
    """Return whether the line's level is a warning or less, or the program says in it how it goes on."""
    if any(level in text for level in _OWN_LEVEL):
        return False
    if _INFORMATION in text or has_warning_level(text):
        return True
    return goes_on(text)


def has_warning_level(text: str) -> bool:
    """Return whether the program calls the line a warning; those of torch itself, in glog's form, often name a failure."""
    prefix, _ = split_prefix(text)
    is_logged = prefix.level is Level.WARNING and not prefix.is_glog
    return is_logged or _PYTHON_WARNING.search(text) is not None


def ends_with_warning(before: tuple[str, ...]) -> bool:
    """Return whether the lines, the newest first, end with a warning, or with one and the source line that Python adds."""
    is_source = before[:1] and before[0].startswith("  ")
    return any(has_warning_level(text) for text in before[: 2 if is_source else 1])


def is_boundary(text: str) -> bool:
    """Return whether the line begins another message: a logger's line, a warning, a progress bar or a ruler."""
    prefix, _ = split_prefix(text)
    is_logged = prefix.has_stamp or prefix.level is not None or any(level in text for level in _OWN_LEVEL)
    return is_logged or _BOUNDARY.match(text) is not None or _PYTHON_WARNING.search(text) is not None


def opens_help(text: str) -> bool:
    """Return whether the line opens a help text of Open MPI: several lines, some blank, up to a ruler."""
    return _HELP.match(text) is not None


def read_error_file(text: str) -> list[str]:
    """Return the lines of a traceback in a line of JSON, as torch's error files hold it; nothing for another line."""
    if "py_callstack" not in text or not (match := _STACK.search(text)):
        return []
    try:
        stack = str(parse_json(f'"{match[1]}"'))
    except ParseError:
        return []
    return stack.split("\n")
