"""Log lines as they are printed: what is shown of them, and in which form."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO
from zlib import crc32

import click

from kfjob.events import LogGap

if TYPE_CHECKING:
    from kfjob.api.logs.read import Line
    from kfjob.events import LogLine

SECOND = 1_000_000_000
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta", "bright_yellow")
_TIMELESS = "the saved logs hold no times (`kubectl logs --timestamps` saves them): `--since` and `--timestamps` do nothing"
_LOST = "lines are lost, the kubelet rotated them away"


@dataclass(frozen=True, kw_only=True)
class Form:
    """How lines are shown, and which."""

    kind: str = "default"  # default | raw | json
    colour: bool = False
    timestamps: bool = False
    timed: bool = False
    """Something was asked that needs the lines' times: it is said where there are none."""
    include: Sequence[re.Pattern[str]] = ()
    exclude: Sequence[re.Pattern[str]] = ()
    highlight: Sequence[re.Pattern[str]] = ()

    def shows(self, text: str) -> bool:
        """Whether the line is wanted."""
        if self.include and not any(pattern.search(text) for pattern in self.include):
            return False
        return not any(pattern.search(text) for pattern in self.exclude)

    def marked(self, text: str) -> str:
        """The line with what is highlighted in it."""
        for pattern in self.highlight if self.colour else ():
            text = pattern.sub(lambda found: click.style(found[0], fg="red", bold=True) if found[0] else "", text)
        return text


class LogWriter:
    """Writes lines to a stream; word of lost lines goes to `notice`, so that what is written is what was printed."""

    def __init__(self, form: Form, pods: Sequence[str], out: TextIO, notify: Callable[[str], None]) -> None:
        """`pods` that lines may come from; where there is more than one, lines begin with theirs."""
        self._form = form
        self._several = len(set(pods)) > 1
        self._width = max(map(len, pods), default=0)
        self._prefixes: dict[str, str] = {}
        self._out = out
        self._notice = notify
        self._timed = form.timed

    def write(self, lines: Iterable[Line], *, live: bool) -> None:
        """All of them; with `live` each is seen at once."""
        try:
            for line in lines:
                self._gap(line) if isinstance(line, LogGap) else self._line(line)
                if live:
                    self._out.flush()
        finally:
            self._out.flush()

    def _line(self, line: LogLine) -> None:
        form = self._form
        if self._timed and line.time is None:
            self._timed = False
            self._notice(_TIMELESS)
        if not form.shows(line.text):
            return
        if form.kind == "json":
            said = {"time": _utc(line.time), "pod": line.pod, "container": line.container, "text": line.text}
            self._out.write(json.dumps(said, ensure_ascii=False) + "\n")
            return
        stamp = f"{_utc(line.time)} " if form.timestamps and line.time is not None else ""
        prefix = self._prefix(line.pod) if self._several and form.kind == "default" else ""
        self._out.write(f"{prefix}{stamp}{form.marked(line.text)}\n")

    def _gap(self, gap: LogGap) -> None:
        if self._form.kind == "json":
            self._out.write(json.dumps({"time": _utc(gap.after), "pod": gap.pod, "gap": gap.reason or _LOST}) + "\n")
        else:
            self._notice(f"{gap.pod}: {gap.reason or _LOST}")

    def _prefix(self, pod: str) -> str:
        """The same colour for the same pod, in every run."""
        if pod not in self._prefixes:
            text = f"{pod:<{self._width}} | "
            colour = _COLOURS[crc32(pod.encode()) % len(_COLOURS)]
            self._prefixes[pod] = click.style(text, fg=colour) if self._form.colour else text
        return self._prefixes[pod]


def _utc(time_ns: int | None) -> str | None:
    if time_ns is None:
        return None
    seconds, rest = divmod(time_ns, SECOND)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09}Z"
