"""The values of the incident stage: what one process reported at one place of its log, over one or several lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct, field

from kfjob.joblog.diagnose.engine.going_on import Further, GoingOn
from kfjob.joblog.lines.timestamps import Timestamp

MAX_MESSAGE = 16
"""Lines of an error message; the longest known one, of `torch.load`, has eight."""
MAX_CHAIN = 8
"""Incidents in a chain of causes."""

_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "\\Lib\\", "<frozen ", ".pyx", ".pxi")
"""Parts of the paths of files that do not belong to the program: installed packages, Python itself, and Cython's sources."""

_LIBRARY_FOLDER = re.compile(r"/site/\w+/|/python3\.\d+/")
"""A folder with packages: the usual target of `pip install --target`, or that of an interpreter."""


def is_library(path: str) -> bool:
    """Return whether the file of a frame belongs to a library."""
    return any(part in path for part in _LIBRARIES) or _LIBRARY_FOLDER.search(path) is not None


class Kind(StrEnum):
    """How an incident was reported."""

    EXCEPTION = "exception"  # a Python traceback, or the line that ends one
    NATIVE = "native"  # C++ or the interpreter ended the process
    MESSAGE = "message"  # a line of a library, a launcher, a compiler or the kernel
    WARNING = "warning"  # a line that its program calls a warning, or that says how the program goes on


class Relation(StrEnum):
    """What an exception is to the exception before it in the same log."""

    NONE = "none"
    FOLLOWS = "follows"  # raised from it, or while it was handled
    EXPLAINS = "explains"  # the one before wraps it: a launcher or a library repeats the error of a child


class Mark(Struct):
    """The place of a line among all events of the job."""

    order: int
    timestamp: Timestamp
    line: int
    joined: bool = False  # the agent had joined a round before
    readings: int = 0  # progress lines of the pod before it
    round_start: int = 0  # order of the start of its round, or of its container
    steps: int = 0  # that the program had reported after an earlier exception
    latest: Timestamp | None = None  # upper bound of an inexact time: the next time in the log


class Dump(Struct):
    """The stacks that faulthandler has printed for a crash, the innermost frame first."""

    lines: int = 0
    in_current: bool = False  # the frames are those of the thread that crashed
    frames: tuple[str, ...] = ()  # of that thread, as printed


class Incident(Struct, kw_only=True):
    """One error, crash, warning or message."""

    kind: Kind
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
    dump: Dump | None = None  # the stacks that faulthandler has printed
    in_thread: bool = False  # ended a thread, not the process
    going_on: GoingOn = field(default_factory=GoingOn)
    further: Further = field(default_factory=Further)
    in_warning: bool = False  # the program prints its traceback as part of a warning
    after_warning: bool = False  # a warning stands directly before its traceback
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
