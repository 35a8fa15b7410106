"""Where the logs of a diagnosis come from."""

from __future__ import annotations

from enum import Enum, auto


class LogSource(Enum):
    """Where the logs come from: it decides which commands a remedy can name."""

    JOB = auto()  # a job of a backend, or of the archive
    SAVED = auto()  # a file or a folder
    STANDARD_INPUT = auto()  # which can be read once
