"""The program's own lines in a pod's log. torchrun's agent writes its messages into the same log; they are left out.

The agent's lines are its log messages (torch/distributed/{elastic,launcher,run.py}), its traceback after a failure, and the box
that names the failed workers (torch/distributed/elastic/multiprocessing/errors/__init__.py `ChildFailedError.format_msg`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from kfjob.events import LogLine
from kfjob.observe.agent_log import find_agent_message, is_agent_detail
from kfjob.observe.lines import TRACEBACK_HEADING, clean_line, find_newest_state
from kfjob.observe.prefixes import split_process
from kfjob.printable import clean_text

HEADING = f"{TRACEBACK_HEADING}:"
_Selected = tuple[str, LogLine | None]
MAX_HELD = 300
"""Lines of a traceback in memory until its end shows which program wrote it."""

_PHRASES = ("Setting OMP_NUM_THREADS environment variable for each process", '"name": "torchelastic.worker.status.')
"""Words of other messages: a warning whose first line alone has a prefix, and the events of `--event-log-handler console`."""
_STARS = re.compile(r"\*{41}$")
_BORDER = re.compile(r"={10,}$")
_NATIVE_FRAME = re.compile(r"frame #\d+: |#\d+ +(?:0x[0-9a-f]+ )?(?:in )?\S+\(|[^\s(]+\([^()]*\) ?\[0x[0-9a-f]+\]$")
"""A frame of native code, as c10, a debugger or glibc prints it."""
_AGENT_FRAMES = tuple(
    f"torch/distributed/{part}" for part in ("run.py", "launch.py", "launcher/", "elastic/agent/", "elastic/rendezvous/")
)
_GOES_ON = re.compile(
    r"\s*$|During handling of the above exception, another exception occurred:$"
    r"|Exception raised from .* \(most recent call first\)"
    r"|The above exception was the direct cause of the following exception:$|frame #\d+: "
)
"""Lines after an agent's traceback that belong to it: the rest of the message, and the words between two tracebacks."""


class ProgramLines:
    """Reader for the program's lines in one container's log."""

    def __init__(self) -> None:
        """Begin where the log begins."""
        self._selector = _Selector()

    def feed(self, text: str) -> list[str]:
        """Read a line; return the lines of the program that are now complete, without colours and control characters."""
        return [plain for plain, _ in self._selector.feed(_to_plain(text), None)]

    def flush(self) -> list[str]:
        """Return the lines that wait for the next one."""
        return [plain for plain, _ in self._selector.flush()]


def find_program_lines(newest_first: Iterable[str]) -> list[str]:
    """Return the lines of the program that are not blank, without the spaces around them, in the order of the log."""
    reader = ProgramLines()
    lines = [line for text in reversed(list(newest_first)) for line in reader.feed(text)] + reader.flush()
    return [line.strip() for line in lines if line.strip()]


def condense_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines without frames of native code, and without lines that repeat the one before in another process."""
    condensed: list[str] = []
    newest = None
    for line in lines:
        body = split_process(line)[1].strip()
        if body != newest and not _NATIVE_FRAME.match(body):
            condensed.append(line)
            newest = body
    return condensed


class ProgramFilter:
    """Filter for the program's lines in the logs of several containers. The lines keep their times, colours and spaces."""

    def __init__(self) -> None:
        """Begin where the logs begin."""
        self._selectors: dict[tuple[str, str], _Selector] = {}

    def feed(self, line: LogLine) -> list[LogLine]:
        """Read a line; return the lines of the program that are now complete."""
        selector = self._selectors.setdefault((line.pod, line.container_id), _Selector())
        return [_restore(plain, item) for plain, item in selector.feed(_to_plain(line.text), line) if item]

    def flush(self) -> list[LogLine]:
        """Return the lines that wait for the next one."""
        return [_restore(plain, item) for selector in self._selectors.values() for plain, item in selector.flush() if item]


class _Selector:
    """Selects the program's lines of one container; each has its plain text and the line that it comes from."""

    def __init__(self) -> None:
        self._held: list[_Selected] = []  # lines of a traceback, or a border, that may be the agent's
        self._in_box = False
        self._after_traceback = False  # the last lines were an agent's traceback

    def feed(self, text: str, line: LogLine | None) -> list[_Selected]:
        if self._in_box:
            self._in_box = not _BORDER.match(text)
            return []
        if self._held:
            return self._continue(text, line)
        if text == HEADING or _BORDER.match(text):
            self._held = [(text, line)]
            return []
        if self._after_traceback and _GOES_ON.match(text):
            return []
        self._after_traceback = False
        return [(part, line) for part in _select(text)]

    def flush(self) -> list[_Selected]:
        held, self._held = self._held, []
        return held

    def _continue(self, text: str, line: LogLine | None) -> list[_Selected]:
        """Read the line after the first line of a traceback, or after a border."""
        if self._held[0][0] != HEADING:
            border = self.flush()
            self._in_box = text.rstrip().endswith(" FAILED")
            return [] if self._in_box else [*border, *self.feed(text, line)]
        if find_agent_message(text) is not None:
            return []  # the agent goes on logging while a program prints
        self._held.append((text, line))
        if text.startswith("  ") and len(self._held) < MAX_HELD:
            return []
        lines = self.flush()
        if any(frame in plain for plain, _ in lines for frame in _AGENT_FRAMES):
            self._after_traceback = True
            return []
        return lines


def _restore(plain: str, line: LogLine) -> LogLine:
    """Return the line as it was printed; without the part that the agent printed, if it has one."""
    return line if find_agent_message(_to_plain(line.text)) is None else replace(line, text=plain)


def _select(text: str) -> list[str]:
    """Return the part of a line that the program printed: a progress bar without a line end may precede an agent's message."""
    if (before := find_agent_message(text)) is not None:
        return [before] if before else []
    is_agents = is_agent_detail(text) or _STARS.match(text) or any(phrase in text for phrase in _PHRASES)
    return [] if is_agents else [text]


def _to_plain(text: str) -> str:
    """Return the line without colours and control characters; of a progress bar, its newest state."""
    plain, _ = clean_line(text)
    if "\r" in plain:
        plain = find_newest_state(plain, str.strip) or ""
    return clean_text(plain, space="")
