"""The words with which a program says that it goes on after an error: in the line of the error, or in a line after it."""

from __future__ import annotations

from msgspec import Struct

from kfjob.patterns import Pattern

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


class GoingOn(Struct):
    """What a program says about an error after it: an incident and the occurrence that it shows share one of these."""

    handled: bool = False  # the program says what it does instead
    retried: bool = False  # the program says that it tries again

    def read(self, text: str) -> None:
        """Read a line after the error."""
        self.handled = self.handled or announces_recovery(text)
        self.retried = self.retried or announces_retry(text)


def goes_on(text: str) -> bool:
    """Return whether the line of an error says itself what the program does instead, or that it tries again."""
    return _IN_LINE.search(text) is not None


def announces_recovery(text: str) -> bool:
    """Return whether a line after an error says what the program does instead of what has failed."""
    return len(text) <= MAX_LENGTH and _AFTER.search(text) is not None


def announces_retry(text: str) -> bool:
    """Return whether a line after an error says that the program tries again, which may fail too."""
    return len(text) <= MAX_LENGTH and _RETRY_AFTER.search(text) is not None
