"""Runs of a test suite in a log: errors that the tests provoke are no causes if the run ends well.

pytest and unittest print a summary at the end (`_pytest/terminal.py` `build_summary_stats_line`, `unittest/runner.py` `run`).
A summary alone is no run: the lines of its tests must stand before it. pytest prints a heading; `pytest -q` and unittest print
a dot for each test, and `unittest -v` a line.
"""

from __future__ import annotations

from msgspec import Struct, field

from kfjob.base.patterns import Pattern
from kfjob.joblog.lines.prefixes import split_process

LITERALS = (" passed", " tests in ", "Ran 1 test in ", "test session starts", "collected ", ") ... ")
"""Literals of which every line of a run that matters contains one, unless it has one of `LINE_STARTS`."""
LINE_STARTS = (".", "test_")
"""Beginnings of lines in which tests report their results."""
LINES_AFTER = {" tests in ": 3, "Ran 1 test in ": 3}
"""Literals of a first line, and the lines after it in which unittest prints the result."""
MAX_RUNS = 16
"""Runs of a container to remember, the newest ones."""
MAX_STREAMS = 16
"""Processes whose runs can mix."""
MAX_MARKS = 256
"""Lines with results to remember, the newest ones."""
REACH = 50
"""Lines before the first dot that may be output of the first test: a dot follows its test."""

_BEGIN = Pattern(r"^=+ test session starts |^collected \d{1,9} items?\b")
_DOTS = Pattern(r"^([.sxXu]*\.[.sxXu]*)(?: +\[ *\d{1,3}%\])?$|^(\.+)[^\s./]")
_NAMED = Pattern(r"^test\w{0,200} \([\w.]{1,400}\)(?: \.\.\. |$)")
_GOOD_WORDS = "passed|skipped|deselected|xfailed|xpassed|warnings?|rerun|subtests? passed"
_SUMMARY = Pattern(
    rf"^(?:=+ )?(?:\d{{1,9}} (?:{_GOOD_WORDS}|failed|errors?)(?:, | )){{1,8}}"
    r"in \d[\d.]{0,12}s\b(?: \([\d:, day]{1,30}\))?(?: =+)?$"
)
_BAD = Pattern(r"\d (?:failed|errors?)\b")
_RESULTS = Pattern(r"(\d{1,9}) (?:passed|skipped|xfailed|xpassed)\b")
_COUNT = Pattern(r"^Ran (\d{1,9}) tests? in \d[\d.]{0,12}s$")
_OK = Pattern(r"^OK(?: \([\w ,=]{1,100}\))?$")
_NOT_OK = Pattern(r"^FAILED \(")


class SuiteRun(Struct, frozen=True):
    """A run that ended well: the numbers of its first and last lines in the log of its container."""

    stream: str  # prefix of the process that printed it
    first: int
    last: int

    def contains(self, line: int, stream: str, *, is_alone: bool) -> bool:
        """Return whether the line is output of the run; `is_alone`: the tests started the processes of all other streams."""
        return self.first <= line <= self.last and (stream == self.stream or (is_alone and not self.stream))


class _Stream(Struct):
    """What the process with one prefix has printed of a run."""

    begin: int | None = None  # number of the heading
    marks: list[tuple[int, int, int]] = field(default_factory=list)  # line, its tests, and lines of output before it
    count: int = 0  # tests in the summary of unittest
    lines: int = 0  # to read for the result of unittest

    def find_begin(self, tests: int, after: int) -> int | None:
        """Return the number of the first line of a run with this number of tests; None if the log does not show the tests.

        `after` is the number of a line that stands before the run.
        """
        if self.begin is not None:
            return self.begin
        count = 0
        for index in reversed(range(len(self.marks))):
            line, results, reach = self.marks[index]
            count += results
            if count >= tests or index == 0:
                before = self.marks[index - 1][0] if index else after
                is_enough = 2 * count >= tests or len(self.marks) >= MAX_MARKS  # a few lines may be missing
                return max(line - reach, before + 1) if count and is_enough else None
        return None


class SuiteRuns(Struct):
    """The runs in the log of one container that ended well."""

    passed: list[SuiteRun] = field(default_factory=list)
    result: tuple[int, str] | None = None  # number and text of the line with the newest result
    streams: dict[str, _Stream] = field(default_factory=dict)
    expects_result: bool = False  # unittest has printed its count, and not yet its result

    def read(self, text: str, *, line: int) -> bool:
        """Return whether a run ends well in this line, which has no colours."""
        if not self.expects_result and not text.startswith(LINE_STARTS) and not _matters(text):
            return False
        key, body = split_process(text.rstrip())
        stream = self.streams.get(key)
        if stream is None:
            if len(self.streams) >= MAX_STREAMS:
                del self.streams[next(iter(self.streams))]
            stream = self.streams[key] = _Stream()
        has_ended = self._read(stream, key, body, line)
        self.expects_result = any(item.lines > 0 for item in self.streams.values())
        return has_ended

    def _read(self, stream: _Stream, key: str, text: str, line: int) -> bool:
        if _BEGIN.search(text):
            stream.begin = stream.begin if stream.begin is not None and text.startswith("collected") else line
        elif match := _DOTS.search(text):
            _add_mark(stream, line, len(match[1] or match[2] or ""), REACH)
        elif _NAMED.search(text):
            _add_mark(stream, line, 1, 0)
        elif match := _COUNT.search(text):
            stream.lines, stream.count = LINES_AFTER[" tests in "], int(match[1] or 0)
        elif _SUMMARY.search(text):
            tests = sum(int(match[1] or 0) for match in _RESULTS.find_all(text))
            return self._end(stream, key, text, line, tests=tests, is_good=_BAD.search(text) is None)
        elif stream.lines:
            stream.lines -= 1
            if (is_good := _OK.search(text) is not None) or _NOT_OK.search(text):
                return self._end(stream, key, text, line, tests=stream.count, is_good=is_good)
        return False

    def _end(self, stream: _Stream, key: str, text: str, line: int, *, tests: int, is_good: bool) -> bool:
        after = max((run.last for run in self.passed if run.stream == key), default=0)
        first = stream.find_begin(tests, after)
        self.streams[key] = _Stream()
        if is_good:
            self.result = line, text
            if first is not None:
                self.passed = [*self.passed, SuiteRun(key, first, line)][-MAX_RUNS:]
        return is_good and first is not None

    def contain(self, line: int, stream: str, *, is_alone: bool) -> bool:
        """Return whether this line of this stream belongs to one of the runs; `is_alone` as for `SuiteRun.contains`."""
        return any(run.contains(line, stream, is_alone=is_alone) for run in self.passed)


def _matters(text: str) -> bool:
    """Return whether the line may be part of a run; a summary without a passed test has other words."""
    if any(literal in text for literal in LITERALS):
        return True
    return (" failed" in text or " error" in text) and _SUMMARY.search(split_process(text.rstrip())[1]) is not None


def _add_mark(stream: _Stream, line: int, results: int, reach: int) -> None:
    stream.marks = [*stream.marks, (line, results, reach)][-MAX_MARKS:]
