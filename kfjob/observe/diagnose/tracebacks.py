"""Python tracebacks in a log to which several processes print at the same time.

A line belongs to the process whose prefix it has: `[rank1]: `, `[default0]:`, or the two spaces of torchrun's summary.
"""

from __future__ import annotations

import re

from msgspec import Struct

HEADING = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_THREAD = "Exception in thread "
_IGNORED = "Exception ignored in"

MAX_LINES = 300
"""Length of a traceback; a longer one is given up."""
MAX_OPEN = 64
"""Tracebacks of different processes that are read at the same time."""

_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*))?$")
_EXCEPTION_NAME = re.compile(r"(?:Error|Exception|Exit|Interrupt|Failure|Timeout|Warning|NotFound|Closed|Expired|Group)$")
_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)')
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python", "<frozen ")


class Raised(Struct, frozen=True):
    """The exception at the end of a traceback."""

    kind: str  # class of the exception
    message: str
    location: str  # `file:line` of the innermost frame of the program itself, "" if there is none
    frame: tuple[str, ...]  # that frame as printed
    chained: bool  # follows from the previous exception, and replaces it
    in_thread: bool  # ended a thread, not the process
    prefix: str


class _OpenTraceback(Struct):
    chained: bool
    in_thread: bool
    remaining_lines: int = MAX_LINES
    in_frame: bool = True  # the last line was part of a frame
    location: str = ""
    frame: tuple[str, ...] = ()
    expects_code: bool = False  # the next line is the source line of the frame

    def add_line(self, text: str) -> None:
        """Add a line of a frame; keep the innermost frame of the program itself."""
        self.in_frame = True
        if match := _FRAME.match(text):
            self.expects_code = not any(part in match[1] for part in _LIBRARIES)
            if self.expects_code:
                self.location, self.frame = f"{match[1]}:{match[2]}", (text.rstrip(),)
        elif self.expects_code and text.strip():
            self.frame, self.expects_code = (*self.frame, text.rstrip()), False


class Tracebacks:
    """Reader for the tracebacks in one container's log."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenTraceback] = {}
        self._chained = False
        self._in_thread = False
        self._ignored = False
        self.in_body = False  # the last line was part of a traceback's body: source code, not a message

    @property
    def open(self) -> bool:
        """Whether a traceback has not ended, so that every line is relevant."""
        return bool(self._open)

    def feed(self, text: str) -> Raised | None:
        """Read a line; return the exception if the line ends a traceback."""
        self.in_body = False
        if HEADING in text:
            self._start(text[: text.index(HEADING)])
            return None
        self._read_introduction(text)
        for prefix in sorted(self._open, key=len, reverse=True):
            if text.startswith(prefix):
                return self._continue(prefix, text[len(prefix) :])
        return None

    def _read_introduction(self, text: str) -> None:
        """Read the line that Python prints before some tracebacks."""
        if "xception" in text:
            self._chained = self._chained or any(words in text for words in _CHAINED)
            self._in_thread = self._in_thread or _THREAD in text
            self._ignored = self._ignored or _IGNORED in text

    def _start(self, prefix: str) -> None:
        if prefix.strip() == "traceback :":
            prefix = "  "
        if not self._ignored and (len(self._open) < MAX_OPEN or prefix in self._open):
            self._open[prefix] = _OpenTraceback(chained=self._chained, in_thread=self._in_thread)
        self._chained = self._in_thread = self._ignored = False

    def _continue(self, prefix: str, text: str) -> Raised | None:
        traceback = self._open[prefix]
        traceback.remaining_lines -= 1
        if text.startswith("  ") or not text.strip():
            traceback.add_line(text)
            self.in_body = True
        elif match := _match_exception(text, after_frame=traceback.in_frame):
            del self._open[prefix]
            return Raised(
                kind=match[1],
                message=match[2] or "",
                location=traceback.location,
                frame=traceback.frame,
                chained=traceback.chained,
                in_thread=traceback.in_thread,
                prefix=prefix,
            )
        else:
            traceback.in_frame = False
        if traceback.remaining_lines <= 0:
            del self._open[prefix]
        return None


def _match_exception(text: str, *, after_frame: bool) -> re.Match[str] | None:
    """Match `Class: message`: a class with a usual name, or any capitalised class directly after a frame."""
    match = _EXCEPTION.match(text)
    return match if match and (_EXCEPTION_NAME.search(match[1]) or (after_frame and match[1][:1].isupper())) else None
