"""The program's own lines in a pod's log. torchrun's agent writes its messages into the same log; they are left out.

The agent's lines are its log messages (torch/distributed/{elastic,launcher,run.py}), its traceback after a failure, and lines
without a prefix. A program may print the same words as those, so they count as the agent's only where torch's own layout
requires it:

    the failure box          a border, `NAME FAILED`, a row of `-`, `Failures:` … and the border again
                             (torch/distributed/elastic/multiprocessing/errors/__init__.py `_MSG_FORMAT_TEMPLATE`)
    fields of a message      launch settings and rendezvous results in the plain format, in torch's order after their heading
    the warning of torchrun  a row of 41 stars, the sentence about OMP_NUM_THREADS, the stars again (torch/distributed/run.py)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from kfjob.base.printable import clean_text
from kfjob.joblog.agents.agent_log import HEADINGS, SETTINGS, find_agent_message, is_etcd_message
from kfjob.joblog.agents.agent_records import FIELDS
from kfjob.joblog.events import LogLine
from kfjob.joblog.lines.line_text import TRACEBACK_HEADING, find_newest_state
from kfjob.joblog.lines.prefixes import clean_line, split_process

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


MAX_FOREIGN = 8
"""Lines of other processes within the box or the fields of an agent; after more of them the rest counts as cut."""

_BORDER = re.compile(r"={10,60}$")
_TITLE = re.compile(r"\S.* FAILED$")
_SECTION = re.compile(r"-{10,60}$")
_FAILURES = re.compile(r"Failures:$")
_BOX_LINE = re.compile(r"  |\[\d{1,6}\]:$|-{10,60}$|Root Cause \(first observed failure\):$|$")
_BEFORE_WARNING = r"(?:\[[^\]]*\] (?:\[[^\]]*\] )?[\w.]+: \[WARNING\] )?"
_STARS = re.compile(rf"{_BEFORE_WARNING}\*{{41}}$")
_THREADS = re.compile(
    rf"{_BEFORE_WARNING}Setting OMP_NUM_THREADS environment variable for each process to be \d+ in default, to avoid your"
    r" system being overloaded, please further tune the variable for optimal performance in your application as needed\. ?$"
)
_PLAIN = re.compile(r"[A-Z]{4,8}:torch\.distributed\.")
_FIELD = re.compile(r"  (\w+)=\S")
_SETTING = re.compile(r"  (\w+) +: ")
_MANY = "rdzv_"
"""Several settings have this prefix, in one pattern."""
_Read = Callable[[str], re.Match[str] | None]


class AgentBlock:
    """A box or a warning of torchrun that is being read: its first lines may be the program's after all."""

    def __init__(self, text: str) -> None:
        """Begin with the first line, for which `starts_block` is true."""
        self._border = text
        is_box = _BORDER.match(text) is not None
        self._start: list[_Read] = [_TITLE.match, self._match_section, _FAILURES.match] if is_box else [_THREADS.match]
        self._is_box = is_box
        self._foreign = 0

    @property
    def confirmed(self) -> bool:
        """Whether only torchrun can have printed the lines so far."""
        return not self._start

    @property
    def open(self) -> bool:
        """Whether more lines may follow."""
        return self._foreign <= MAX_FOREIGN

    def accepts(self, text: str) -> bool:
        """Read the next line; return whether it belongs to the block."""
        if self._start:
            return self._start.pop(0)(text) is not None
        is_end = text == self._border if self._is_box else _STARS.match(text) is not None
        belongs = is_end or (self._is_box and _BOX_LINE.match(text) is not None)
        self._foreign += MAX_FOREIGN + 1 if is_end else not belongs
        return belongs

    def _match_section(self, text: str) -> re.Match[str] | None:
        return _SECTION.match(text) if len(text) == len(self._border) else None


def starts_block(text: str) -> bool:
    """Return whether the line may be the first one of a box or of torchrun's warning."""
    return _BORDER.match(text) is not None or _STARS.match(text) is not None


class AgentFields:
    """The lines that may follow the heading of an agent's message in the plain format: each name once, in torch's order."""

    def __init__(self) -> None:
        """Begin without a heading."""
        self._names: list[str] = []  # patterns of the names that may follow
        self._pattern = _FIELD
        self._foreign = 0

    def read_message(self, text: str) -> None:
        """Read a line that has an agent's prefix."""
        self._names, self._foreign = [], 0
        if _PLAIN.search(text) is None:
            return  # in the other formats every line has the prefix
        if HEADINGS[0] in text:
            self._names, self._pattern = list(FIELDS), _FIELD
        elif HEADINGS[1] in text:
            self._names, self._pattern = list(SETTINGS), _SETTING

    def accepts(self, text: str) -> bool:
        """Read a line without prefix; return whether it is the next field of the message."""
        if not self._names:
            return False
        match = self._pattern.match(text)
        places = (place for place, name in enumerate(self._names) if match and re.fullmatch(name, match[1]))
        if (place := next(places, None)) is not None:
            self._names = self._names[place + (_MANY not in self._names[place]) :]
            return True
        self._foreign += 1
        if self._foreign > MAX_FOREIGN:
            self._names = []
        return False
