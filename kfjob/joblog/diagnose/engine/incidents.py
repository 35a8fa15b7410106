"""Incidents: what one process reported at one place of its log, over one or several lines.

Below the values are the forms of single lines: warnings, lines that begin another message, and quotations of data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct, field

from kfjob.base.patterns import Pattern
from kfjob.joblog.diagnose.engine.line_reports import Announcement, announces_continuation
from kfjob.joblog.diagnose.rule import IncidentKind
from kfjob.joblog.lines.prefixes import Level, split_prefix
from kfjob.joblog.lines.timestamps import Timestamp
from kfjob.joblog.lines.vocabulary import MESSAGE_COUNTERS

MAX_MESSAGE = 16
"""Lines of an error message; the longest known one, of `torch.load`, has eight."""
MAX_CHAIN = 8
"""Incidents in a chain of causes."""

_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "\\Lib\\", "<frozen ", ".pyx", ".pxi")
"""Parts of the paths of files that do not belong to the program: installed packages, Python itself, and Cython's sources."""

_LIBRARY_FOLDER = re.compile(r"/site/\w+/|/python3\.\d+/")
"""A folder with packages: the usual target of `pip install --target`, or that of an interpreter."""

_PYTHON_WARNING = Pattern(r"(?:\S+:\d+: |^)\w{0,40}Warning: |^[\w.-]{1,40}: [Ww]arning: ")
_INFORMATION = "NCCL INFO "
_OWN_LEVEL = ("NCCL WARN", "<warn>")
_BOUNDARY = re.compile(
    r"\s{0,4}\d{1,3}%\||[\w.-]{1,80}:\d+:\d+ \[\d+\] |"
    rf"(?i:(?:{'|'.join(MESSAGE_COUNTERS)})\b\W{{0,3}}\d)|"
    r"={8,}|-{8,}|\*{8,}|\{'|usage: "
)
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
MAX_QUOTATION_DISTANCE = 40
"""Lines before an error in which a quotation that holds it may begin."""


def is_library(path: str) -> bool:
    """Return whether the file of a frame belongs to a library."""
    return any(part in path for part in _LIBRARIES) or _LIBRARY_FOLDER.search(path) is not None


class Relation(StrEnum):
    """What an exception is to the exception before it in the same log."""

    NONE = "none"
    FOLLOWS = "follows"  # raised while it was handled
    WRAPS = "wraps"  # raised from it: the one before is its cause
    EXPLAINS = "explains"  # the one before wraps it: a launcher or a library repeats the error of a child


class Mark(Struct):
    """The place of a line among all events of the job."""

    order: int
    timestamp: Timestamp
    line: int
    joined: bool = False  # the agent had joined a round before
    readings: int = 0  # progress lines of the pod before it
    round_start: int = 0  # order of the start of its round, or of its container
    latest: Timestamp | None = None  # upper bound of an inexact time: the next time in the log


class Incident(Struct, kw_only=True):
    """One error, crash, warning or message."""

    kind: IncidentKind
    mark: Mark  # of the decisive line
    stream: str = ""  # prefix of the process that printed it
    lines: list[str] = field(default_factory=list)  # the message without prefixes
    printed: list[str] = field(default_factory=list)  # the same lines as printed
    name: str = ""  # class of an exception
    message: str = ""  # first line of its message
    location: str = ""  # `file:line` of the innermost frame of the program itself
    frame: tuple[str, ...] = ()  # that frame as printed
    stack: tuple[str, ...] = ()  # the newest lines of the traceback
    context: tuple[str, ...] = ()  # the lines before it as printed
    relation: Relation = Relation.NONE
    previous: Incident | None = None  # the incident that `relation` refers to
    in_thread: bool = False  # ended a thread, not the process
    announcement: Announcement = field(default_factory=Announcement)
    in_warning: bool = False  # the program prints its traceback as part of a warning
    first_position: int = 0  # of its traceback among the lines of its process
    last_position: int = 0
    is_cut: bool = False  # the log ends before the line with the exception
    wrapped: bool = False  # a box wraps its lines at a width

    @property
    def text(self) -> str:
        """The whole message. Lines that a box has wrapped are joined."""
        return (" " if self.wrapped else "\n").join(self.lines)

    def add_line(self, text: str, printed: str) -> None:
        """Add a line of the message; those beyond `MAX_MESSAGE` are dropped."""
        if len(self.lines) < MAX_MESSAGE:
            self.lines.append(text)
            self.printed.append(printed)

    def link(self, previous: Incident | None) -> None:
        """Record the incident that this one follows from or explains; a longer chain is cut."""
        self.previous = previous
        chain = list(self.chain())
        if len(chain) > MAX_CHAIN:
            chain[MAX_CHAIN - 1].previous = None

    def chain(self) -> Iterator[Incident]:
        """Return this incident and those before it."""
        incident: Incident | None = self
        while incident is not None:
            yield incident
            incident = incident.previous


def is_warning(text: str) -> bool:
    """Return whether the line's level is a warning or less, or the program says in it how it goes on."""
    if any(level in text for level in _OWN_LEVEL):
        return False
    if _INFORMATION in text or has_warning_level(text):
        return True
    return announces_continuation(text)


def has_warning_level(text: str) -> bool:
    """Return whether the program calls the line a warning; those of torch itself, in glog's form, often name a failure."""
    prefix, _ = split_prefix(text)
    is_logged = prefix.level is Level.WARNING and not prefix.is_glog
    return is_logged or _PYTHON_WARNING.search(text) is not None


def is_boundary(text: str) -> bool:
    """Return whether the line begins another message: a logger's line, a warning, a progress bar or a ruler."""
    prefix, _ = split_prefix(text)
    is_logged = prefix.has_stamp or prefix.level is not None or any(level in text for level in _OWN_LEVEL)
    return is_logged or _BOUNDARY.match(text) is not None or _PYTHON_WARNING.search(text) is not None


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
