"""Warnings and notes of libraries in a program's output, which say nothing about the training: the follow view leaves them out.

A line that a diagnosis takes for an error stays, and so do the warnings of the program's own files.
"""

from __future__ import annotations

from kfjob.base.patterns import Pattern
from kfjob.joblog.diagnose.engine.matching import match_rules
from kfjob.joblog.diagnose.rule import Severity, Subject

_RANK = r"(?:\[[\w:/ -]{1,40}\]:? ?)?"
_TIME = r"\d{4} \d\d:\d\d:\d\d[.\d]*"
_NATIVE = Pattern(
    rf"{_RANK}\[[IWV]{_TIME} \S+:\d+\]"  # c10: [W1121 06:37:49.644 socket.cpp:752] …
    rf"|{_RANK}[IWV]{_TIME} +(?:\d+ +)?\S*/?torch/\S+\]"
    r"|\[Gloo\] Rank \d+ is connected to "
    r"|(?:\d{4}-\d\d-\d\d \S+: )?[IW] ?(?:\d{4} \S+ +\d+ )?(?:tensorflow|external|xla)/\S+\]"
    r"|WARNING: All log messages before absl::InitializeLog"
)
_PYTHON = Pattern(rf"{_RANK}(?:\S*/(?:site-packages|dist-packages|lib/python3\.\d+)/|<frozen )\S.*?:\d+: \w*Warning: ")
"""Python's form of a warning in a file of a library: `/venv/lib/python3.12/site-packages/x.py:3: UserWarning: …`."""
_SOURCE_INDENT = "  "


class LibraryWarnings:
    """Tells the warnings of libraries from the other lines of one log, and counts them."""

    def __init__(self) -> None:
        """Begin where the log begins."""
        self.count = 0
        self._may_have_source = False  # the line after a Python warning may quote its source

    def accepts(self, text: str) -> bool:
        """Return whether the line is worth showing."""
        if self._may_have_source and text.startswith(_SOURCE_INDENT):
            self._may_have_source = False
            self.count += 1
            return False
        is_python = _PYTHON.match(text) is not None
        self._may_have_source = is_python
        if not is_python and _NATIVE.match(text) is None:
            return True
        if any(match.rule.severity is Severity.ERROR for match in match_rules(Subject.LOG, text)):
            self._may_have_source = False
            return True
        self.count += 1
        return False
