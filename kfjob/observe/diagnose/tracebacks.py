"""Python tracebacks in a log in which several processes print at once.

A process is known by what stands in front of its lines (`[rank1]: `, `[default0]:`, the two spaces of torchrun's summary).
"""

from __future__ import annotations

import re

from msgspec import Struct

HEADING = "Traceback (most recent call last):"
_AGAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_THREAD = "Exception in thread "
_IGNORED = "Exception ignored in"

MAX_LINES = 300
"""Lines after which a traceback that has not ended is given up."""
LEADS = 64
"""Processes whose tracebacks are read at once."""

_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*))?$")
_NAMED = re.compile(r"(?:Error|Exception|Exit|Interrupt|Failure|Timeout|Warning|NotFound|Closed|Expired|Group)$")
_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)')
_FOREIGN = ("site-packages", "dist-packages", "/lib/python", "<frozen ")


class Raised(Struct, frozen=True):
    """The end of a traceback."""

    kind: str  # the exception's class
    message: str
    place: str  # `file:line` of the innermost frame of the program itself, "" when there is none
    frame: tuple[str, ...]  # that frame as it was printed
    again: bool  # raised from the one before, or while that one was handled: it stands for that one
    thread: bool  # ended a thread, not the process
    lead: str


class _Open(Struct):
    again: bool
    thread: bool
    left: int = MAX_LINES
    inside: bool = True  # the last line was a frame
    place: str = ""
    frame: tuple[str, ...] = ()
    take_code: bool = False


class Tracebacks:
    """The tracebacks of one container's log."""

    def __init__(self) -> None:
        """Nothing was read."""
        self._open: dict[str, _Open] = {}
        self._again = False
        self._thread = False
        self._ignored = False
        self.quoting = False  # the last line was part of a traceback's body: program text, not a message

    @property
    def waiting(self) -> bool:
        """Whether a traceback is being read, so that every line matters."""
        return bool(self._open)

    def feed(self, text: str) -> Raised | None:
        """The exception that this line tells as the end of a traceback."""
        self.quoting = False
        if HEADING in text:
            self._begin(text[: text.index(HEADING)])
            return None
        self._note(text)
        for lead in sorted(self._open, key=len, reverse=True):
            if text.startswith(lead):
                return self._continue(lead, text[len(lead) :])
        return None

    def _note(self, text: str) -> None:
        if "xception" in text:
            self._again = self._again or any(words in text for words in _AGAIN)
            self._thread = self._thread or _THREAD in text
            self._ignored = self._ignored or _IGNORED in text

    def _begin(self, lead: str) -> None:
        if lead.strip() == "traceback :":
            lead = "  "
        if not self._ignored and (len(self._open) < LEADS or lead in self._open):
            self._open[lead] = _Open(again=self._again, thread=self._thread)
        self._again = self._thread = self._ignored = False

    def _continue(self, lead: str, rest: str) -> Raised | None:
        opened = self._open[lead]
        opened.left -= 1
        if rest.startswith("  ") or not rest.strip():
            _frame(opened, rest)
            self.quoting = True
        elif (found := _EXCEPTION.match(rest)) and (_NAMED.search(found[1]) or (opened.inside and found[1][:1].isupper())):
            del self._open[lead]
            return Raised(found[1], found[2] or "", opened.place, opened.frame, opened.again, opened.thread, lead)
        else:
            opened.inside = False
        if opened.left <= 0:
            del self._open[lead]
        return None


def _frame(opened: _Open, rest: str) -> None:
    opened.inside = True
    if found := _FRAME.match(rest):
        opened.take_code = not any(part in found[1] for part in _FOREIGN)
        if opened.take_code:
            opened.place, opened.frame = f"{found[1]}:{found[2]}", (rest.rstrip(),)
    elif opened.take_code and rest.strip():
        opened.frame, opened.take_code = (*opened.frame, rest.rstrip()), False
