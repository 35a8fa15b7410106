"""Runs of a test suite in a log: errors that the tests provoke are no causes if the run ends well.

pytest and unittest print a summary at the end (`_pytest/terminal.py` `build_summary_stats_line`, `unittest/runner.py` `run`).
"""

from __future__ import annotations

from msgspec import Struct, field

from kfjob.patterns import Pattern

LITERALS = (" passed", " tests in ", "Ran 1 test in ", "test session starts")
"""Literals of which every line with the begin or the summary of a run contains one."""
LINES_AFTER = {" tests in ": 3, "Ran 1 test in ": 3}
"""Literals of a first line, and the lines after it in which unittest prints the result."""
MAX_RUNS = 16
"""Runs of a container to remember, the newest ones."""

_BEGIN = Pattern(r"^=+ test session starts ")
_PASSED = Pattern(
    r"^(?:=+ )?(?:\d{1,9} (?:passed|skipped|deselected|xfailed|xpassed|warnings?|rerun|subtests? passed)(?:, | )){1,8}"
    r"in \d[\d.]{0,12}s\b(?: \([\d:, day]{1,30}\))?(?: =+)?$"
)
_COUNT = Pattern(r"^Ran \d{1,9} tests? in \d[\d.]{0,12}s$")
_OK = Pattern(r"^OK(?: \([\w ,=]{1,100}\))?$")


class SuiteRuns(Struct):
    """The runs in the log of one container that ended well."""

    begin: int = 0  # order of the line that began the newest run; 0: the beginning of the log
    lines: int = 0  # to read for the result of unittest
    passed: list[tuple[int, int]] = field(default_factory=list)  # orders of their first and last lines
    result: tuple[int, str] | None = None  # number and text of the line with the newest result

    @property
    def expects_result(self) -> bool:
        """Whether unittest has printed its count, and not yet its result."""
        return self.lines > 0

    def read(self, text: str, *, order: int, line: int) -> bool:
        """Return whether a run ends well in this line, which has no colours."""
        text = text.rstrip()
        if _BEGIN.search(text):
            self.begin = order
        elif _COUNT.search(text):
            self.lines = LINES_AFTER[" tests in "]
        elif " passed" in text and _PASSED.search(text):
            return self._end(text, order, line)
        elif self.lines:
            self.lines -= 1
            return _OK.search(text) is not None and self._end(text, order, line)
        return False

    def _end(self, text: str, order: int, line: int) -> bool:
        self.result = line, text
        self.passed = [*self.passed, (self.begin, order)][-MAX_RUNS:]
        self.begin, self.lines = order, 0
        return True

    def contain(self, order: int) -> bool:
        """Return whether the line with this order belongs to one of the runs."""
        return any(first <= order <= last for first, last in self.passed)
