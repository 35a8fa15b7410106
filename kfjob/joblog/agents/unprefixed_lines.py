"""Lines of torchrun's agents that have no prefix: only their place after another line of the agent shows who wrote them.

A program may print the same words. So a line counts as the agent's only where torch's own layout requires it:

    the failure box          a border, `NAME FAILED`, a row of `-`, `Failures:` … and the border again
                             (torch/distributed/elastic/multiprocessing/errors/__init__.py `_MSG_FORMAT_TEMPLATE`)
    fields of a message      launch settings and rendezvous results in the plain format, in torch's order after their heading
    the warning of torchrun  a row of 41 stars, the sentence about OMP_NUM_THREADS, the stars again (torch/distributed/run.py)
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kfjob.joblog.agents.reader import HEADINGS, SETTINGS
from kfjob.joblog.agents.records import FIELDS

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
