"""The program's own lines in a pod's log. torchrun's agent writes its messages into the same log; they are left out.

The agent's lines are its log messages (torch/distributed/{elastic,launcher,run.py}), its traceback after a failure, and the box
that names the failed workers (torch/distributed/elastic/multiprocessing/errors/__init__.py `ChildFailedError.format_msg`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from kfjob.base.printable import clean_text
from kfjob.joblog.agents.reader import find_agent_message, is_etcd_message
from kfjob.joblog.agents.unprefixed_lines import AgentBlock, AgentFields, starts_block
from kfjob.joblog.events import LogLine
from kfjob.joblog.lines.prefixes import split_process
from kfjob.joblog.lines.text import TRACEBACK_HEADING, clean_line, find_newest_state

HEADING = f"{TRACEBACK_HEADING}:"
_Selected = tuple[str, LogLine | None]
MAX_HELD = 300
"""Lines of a traceback in memory until its end shows which program wrote it."""

_CONSOLE_EVENT = re.compile(r'(?:\S+ ){0,6}\{"name": "torchelastic\.worker\.status\.')
"""An event of `--event-log-handler console`."""
_NATIVE_FRAME = re.compile(r"frame #\d+: |#\d+ +(?:0x[0-9a-f]+ )?(?:in )?\S+\(|[^\s(]+\([^()]*\) ?\[0x[0-9a-f]+\]$")
"""A frame of native code, as c10, a debugger or glibc prints it."""
_FRAME = re.compile(r'  File "([^"]+)", line \d+, in ')
_AGENT_FRAME = re.compile(r".*torch/distributed/(?:(?:run|launch)\.py|launcher/|elastic/agent/|elastic/rendezvous/)")
_LAUNCHER_FRAME = re.compile(r"<frozen runpy>$|.*/(?:bin/[^/]+|(?:site|dist)-packages/.+|lib/python3[^/]*/[^/]+\.py)$")
"""A file above the agent's frames in a traceback of torchrun or of another launcher: its script, and installed packages."""
_EXCEPTION = re.compile(r"[\w.]+(?::|$)")
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
        self._held: list[_Selected] = []  # lines of a traceback, or of a block, that may be the agent's
        self._block: AgentBlock | None = None
        self._fields = AgentFields()
        self._after_traceback = False  # the last lines were an agent's traceback

    def feed(self, text: str, line: LogLine | None) -> list[_Selected]:
        if self._block is not None:
            return self._continue_block(self._block, text, line)
        if self._held:
            return self._continue_traceback(text, line)
        if text == HEADING:
            self._held = [(text, line)]
            return []
        if starts_block(text):
            self._block, self._held = AgentBlock(text), [(text, line)]
            return []
        if self._after_traceback and _GOES_ON.match(text):
            return []
        self._after_traceback = False
        return [(part, line) for part in self._select(text)]

    def flush(self) -> list[_Selected]:
        held, self._held = self._held, []
        if held:
            self._block = None
        return held

    def _continue_block(self, block: AgentBlock, text: str, line: LogLine | None) -> list[_Selected]:
        """Read a line after the first line of a block."""
        if block.accepts(text):
            self._held = [] if block.confirmed else [*self._held, (text, line)]
            self._block = block if block.open else None
            return []
        if self._held:
            return [*self.flush(), *self.feed(text, line)]
        self._block = block if block.open else None
        return [(part, line) for part in self._select(text)]

    def _continue_traceback(self, text: str, line: LogLine | None) -> list[_Selected]:
        """Read a line after the heading of a traceback."""
        if find_agent_message(text) is not None:
            return []  # the agent goes on logging while a program prints
        self._held.append((text, line))
        if text.startswith("  ") and len(self._held) < MAX_HELD:
            return []
        lines = self.flush()
        self._after_traceback = _is_agents_traceback([plain for plain, _ in lines])
        return [] if self._after_traceback else lines

    def _select(self, text: str) -> list[str]:
        """Return the part of a line that the program printed: a bar without a line end may precede an agent's message."""
        if (before := find_agent_message(text)) is not None:
            self._fields.read_message(text)
            return [before] if before else []
        is_agents = self._fields.accepts(text) or is_etcd_message(text) or _CONSOLE_EVENT.match(text)
        return [] if is_agents else [text]


def _is_agents_traceback(lines: list[str]) -> bool:
    """Return whether a traceback ends in the agent, and no file of a program is above it."""
    files = [match[1] for line in lines if (match := _FRAME.match(line))]
    first = next((index for index, file in enumerate(files) if _AGENT_FRAME.match(file)), None)
    if first is None or not _EXCEPTION.match(lines[-1]):
        return False
    return all(_LAUNCHER_FRAME.match(file) for file in files[:first])


def _restore(plain: str, line: LogLine) -> LogLine:
    """Return the line as it was printed; without the part that the agent printed, if it has one."""
    return line if find_agent_message(_to_plain(line.text)) is None else replace(line, text=plain)


def _to_plain(text: str) -> str:
    """Return the line without colours and control characters; of a progress bar, its newest state."""
    plain, _ = clean_line(text)
    if "\r" in plain:
        plain = find_newest_state(plain, str.strip) or ""
    return clean_text(plain, space="")
