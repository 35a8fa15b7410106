"""Print log lines: filters, colours, prefixes, formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO
from zlib import crc32

import click
from msgspec import Struct

from kfjob.base.common_types import Notify
from kfjob.base.printable import encode_json
from kfjob.cli.formatting import format_rfc3339
from kfjob.joblog.events import LogGap

if TYPE_CHECKING:
    from kfjob.api.excerpts import Line
    from kfjob.base.patterns import Pattern
    from kfjob.joblog.events import LogLine

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta", "bright_yellow")
_NO_TIMES = "the saved logs have no timestamps, so `--since` and `--timestamps` have no effect (`kubectl logs --timestamps`)"
_ROTATED = "lines are missing: the kubelet rotated the log"


class LineFormat(Struct, frozen=True, kw_only=True):
    """Which lines are printed, and how."""

    kind: str = "default"  # default | raw | json
    colour: bool = False
    timestamps: bool = False
    needs_times: bool = False
    """An option needs the times of the lines; the first line without one is worth a note."""
    include: Sequence[Pattern] = ()
    exclude: Sequence[Pattern] = ()

    @property
    def filters(self) -> bool:
        """Whether some lines are not printed."""
        return bool(self.include or self.exclude)

    def includes(self, text: str) -> bool:
        """Return whether the line is printed."""
        if self.include and not any(pattern.search(text) for pattern in self.include):
            return False
        return not any(pattern.search(text) for pattern in self.exclude)


class LogPrinter:
    """Writes lines to a stream. Missing lines are reported to `notify`, so that the stream holds only what the pods printed."""

    def __init__(self, line_format: LineFormat, pods: Sequence[str], out: TextIO, notify: Notify) -> None:
        """Prefix every line with its pod if `pods`, the pods that may print, are several."""
        self._format = line_format
        self._has_prefix = len(set(pods)) > 1
        self._width = max(map(len, pods), default=0)
        self._prefixes: dict[str, str] = {}
        self._out = out
        self._notify = notify
        self._warns_of_missing_times = line_format.needs_times

    def write(self, lines: Iterable[Line], *, live: bool) -> None:
        """Write all lines; `live` flushes each one."""
        try:
            for line in lines:
                self._write_gap(line) if isinstance(line, LogGap) else self._write_line(line)
                if live:
                    self._out.flush()
        finally:
            self._out.flush()

    def _write_line(self, line: LogLine) -> None:
        if self._warns_of_missing_times and line.time is None:
            self._warns_of_missing_times = False
            self._notify(_NO_TIMES)
        if not self._format.includes(line.text):
            return
        if self._format.kind == "json":
            value = {"time": _rfc3339(line.time), "pod": line.pod, "container": line.container, "text": line.text}
            self._out.write(encode_json(value, plain_ascii=False) + "\n")
            return
        timestamp = f"{_rfc3339(line.time)} " if self._format.timestamps and line.time is not None else ""
        prefix = self._prefix(line.pod) if self._has_prefix and self._format.kind == "default" else ""
        self._out.write(f"{prefix}{timestamp}{line.text}\n")

    def _write_gap(self, gap: LogGap) -> None:
        reason = gap.reason or _ROTATED
        if self._format.kind == "json":
            self._out.write(encode_json({"time": _rfc3339(gap.after), "pod": gap.pod, "gap": reason}) + "\n")
        else:
            self._notify(f"{gap.pod}: {reason}")

    def _prefix(self, pod: str) -> str:
        """Return the prefix of a pod; its colour depends only on its name."""
        if pod not in self._prefixes:
            text = f"{pod:<{self._width}} | ".replace("\n", " ")  # a file name can hold a line feed
            colour = _COLOURS[crc32(pod.encode(errors="surrogatepass")) % len(_COLOURS)]
            self._prefixes[pod] = click.style(text, fg=colour) if self._format.colour else text
        return self._prefixes[pod]


def _rfc3339(time_ns: int | None) -> str | None:
    return None if time_ns is None else format_rfc3339(time_ns)
