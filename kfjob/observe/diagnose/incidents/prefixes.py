"""Prefixes that launchers and loggers put before the lines of a process. Lines with the same prefix belong to one stream."""

from __future__ import annotations

import re

from msgspec import Struct

_STREAMS = re.compile(
    r"(?:\[(?:rank|default|[a-z_]\w{0,30}?)\d{1,6}\]:? ?"  # torch, torchrun --tee and its roles
    r"|\[\d{1,6},\d{1,6}\]<std(?:out|err)>: ?"  # mpirun --tag-output
    r"|\((?:[\w.]{1,80} )?pid=\d{1,9}(?:, ip=[\d.]{1,40})?\) ?"  # Ray
    r"|\d{1,5}: (?=\[rank|Traceback|  |[A-Z]\w*(?:Error|Exception)\b)"  # srun --label
    r"|[\w.-]{1,80}: (?=\[rank|\[default|Traceback \(|  File \")"  # pdsh, DeepSpeed
    r"){1,4}"
)
_LOGGER = re.compile(
    r"\[?\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? ?"
    r"(?:[\s|-]{0,4}\[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|stderr|stdout)\]?(?: [FP] | ?[|:-] ?| ))?"
    r"(?:\[?[\w.<>/-]{1,80}:[\w.<>]{1,40}(?::\d{1,6})?\]? ?(?:[|:-] ?))?"
)
_NUMBERS = re.compile(r"\d+")
_GROUP = re.compile(r" {2,20}(?:\| ?|\+ (?=Exception Group)|\+-(?=[+-]))")


def split_stream(text: str) -> tuple[str, str]:
    """Return the prefix that names the process, and the rest of the line."""
    match = _STREAMS.match(text)
    return (match[0].rstrip(), text[match.end() :]) if match else ("", text)


def strip_logger(text: str) -> str:
    """Return the line without the time, the level and the name that a logger puts before its message."""
    match = _LOGGER.match(text)
    return text[match.end() :] if match else text


def strip_group(text: str) -> str:
    """Return the line without the tree that Python draws before the lines of an `ExceptionGroup`."""
    match = _GROUP.match(text)
    return text[match.end() :] if match else text


class Prefix(Struct, frozen=True):
    """A prefix that changes only in its numbers."""

    parts: tuple[str, ...]  # the text between the numbers

    def strip(self, text: str) -> str | None:
        """Return the rest of the line; None if it has another prefix."""
        position = 0
        for index, part in enumerate(self.parts):
            if index:
                start = position
                while text[position : position + 1].isdigit():
                    position += 1
                if position == start:
                    return None
            if not text.startswith(part, position):
                return None
            position += len(part)
        return text[position:]


def learn_prefix(text: str) -> Prefix | None:
    """Return the prefix that the text is; None if it is blank. A space at its end may be missing in other lines."""
    return Prefix(tuple(_NUMBERS.split(text))) if text.strip() else None
