"""How a program shows that it goes on after an error: by words at the error or after it, or by further lines."""

from __future__ import annotations

from msgspec import Struct

from kfjob.base.patterns import Pattern
from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.engine.program_reports import find_step

MAX_LENGTH = 400
"""Length in characters of a line after an error; a longer one announces nothing."""

_INSTEAD = r"falling back|skipping|ignoring|accepting|using fallback"
_RETRY = r"retrying|will (?:retry|be retried|try again)|trying again"
_PASSIVE = r"(?:will )?ignored?|falls? back to|continuing (?:without|with|anyway)|will operate in|will be skipped"

_IN_LINE = Pattern(rf"(?i)\b(?:{_INSTEAD}|{_RETRY}|{_PASSIVE})\b")
_AFTER = Pattern(
    rf"(?i)^\W{{0,3}}(?:{_INSTEAD}|continuing)\b|\bfalling back to"
    rf"|[,;:.-] (?:{_INSTEAD}|continuing|using (?:\w+ ){{1,3}}instead)\b|not available[,;] using "
)
_RETRY_AFTER = Pattern(rf"(?i)\b(?:{_RETRY})\b|retry attempt \d|attempt \d+ ?(?:/|of) ?\d+")


MAX_FURTHER = 500
"""Lines to read after an error."""
MESSAGE_TIME = SECOND // 20
"""Time in which a process prints all lines of a message."""
_ONE_LINE = frozenset(
    ("ModuleNotFoundError", "FileNotFoundError", "PermissionError", "NameError", "KeyError", "IndexError", "ZeroDivisionError")
)
"""Exceptions whose messages have one line."""
END_TIME = SECOND
"""Time in which a process that an exception ends prints its last lines."""
_IN_END = Pattern(
    r"^wandb: |^(?:\[rank\d+\]:)?\[[A-Z]\d|Exception ignored in|resource_tracker|subprocess|terminate called|Fatal Python"
    r"|frame #|^[\w.]*(?:Error|Exception|Warning)\b|above exception|^\W*$| FAILED$|clos|clean|shut|exit|destroy|teardown"
)
"""Words of lines that a process prints while an exception ends it."""


class GoingOn(Struct):
    """What a program says about an error after it: an incident and the occurrence that it shows share one of these."""

    handled: bool = False  # the program says what it does instead
    retried: bool = False  # the program says that it tries again

    def read(self, text: str) -> None:
        """Read a line after the error."""
        self.handled = self.handled or announces_recovery(text)
        self.retried = self.retried or announces_retry(text)


class Further(Struct):
    """What the process of an error printed after it: an exception that ended its process is followed by nothing."""

    lines: int = 0  # ordinary lines of its stream, which other processes may share
    searched: int = 0  # all lines that were read
    lasted: bool = False  # such a line came so much later that no end of a process explains it

    def read(self, text: str, elapsed: int | None) -> None:
        """Read a line of the stream, printed `elapsed` nanoseconds after the error."""
        self.searched += 1
        if self.searched > MAX_FURTHER or find_step(text) is not None:
            return  # the other ranks train until the agent ends them
        if not text.strip() or text[0].isspace() or len(text) > MAX_LENGTH or _IN_END.search(text):
            return
        self.lines += 1
        self.lasted = self.lasted or (elapsed is not None and elapsed > END_TIME)

    def read_below(self, text: str, elapsed: int | None, *, name: str) -> None:
        """Read a line below the first line of an exception's message: it belongs to the message, or is a further line."""
        if name in _ONE_LINE or (elapsed is not None and elapsed > MESSAGE_TIME):
            self.read(text, elapsed)

    @property
    def is_known(self) -> bool:
        """Whether more lines make no difference."""
        return self.lasted or self.searched >= MAX_FURTHER


def goes_on(text: str) -> bool:
    """Return whether the line of an error says itself what the program does instead, or that it tries again."""
    return _IN_LINE.search(text) is not None


def announces_recovery(text: str) -> bool:
    """Return whether a line after an error says what the program does instead of what has failed."""
    return len(text) <= MAX_LENGTH and _AFTER.search(text) is not None


def announces_retry(text: str) -> bool:
    """Return whether a line after an error says that the program tries again, which may fail too."""
    return len(text) <= MAX_LENGTH and _RETRY_AFTER.search(text) is not None
