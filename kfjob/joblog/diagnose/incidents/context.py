"""The lines of the same process before an incident, to quote with it; no blank lines, frames or lines of the agent."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from kfjob.joblog.diagnose.incidents.exceptions import FOLLOWS
from kfjob.joblog.lines.line_text import TRACEBACK_HEADING
from kfjob.joblog.lines.prefixes import split_process

MAX_CONTEXT = 2
"""Lines to quote from before an incident."""
MAX_DISTANCE = 16
"""Lines before an incident in which those of its process are searched."""

_AGENT = ("torch/distributed/elastic", "torch.distributed.elastic", "torch/distributed/run.py", "torch/distributed/launcher")
"""Parts of each line of torchrun and its agent: where a process failed, it is the program's own line that explains."""
_STACK = ("  ", "\t", "│", "|", "╭", "╰", "^", 'File "')
"""First characters of source lines, frames and boxes."""


def find_context(before: Iterable[str], *, process: str) -> tuple[str, ...]:
    """Return the nearest lines of the process in the order of the log; lines without a process if it has printed none.

    `before` are the lines before the incident as printed, the newest first; `process` is the prefix of its process.
    """
    own: list[str] = []
    unnamed: list[str] = []
    for text in islice(before, MAX_DISTANCE):
        if not (stripped := text.strip()) or any(part in stripped for part in _AGENT):
            continue
        name, body = split_process(text)
        if name not in {process, ""} or _is_unrelated(body):
            continue
        (own if name == process else unnamed).append(stripped)
        if len(own) >= MAX_CONTEXT:
            break
    return tuple(reversed((own or unnamed)[:MAX_CONTEXT]))


def _is_unrelated(body: str) -> bool:
    """Return whether the line is part of a traceback, or a ruler."""
    is_stack = body.startswith(_STACK) or TRACEBACK_HEADING in body or body.startswith(FOLLOWS)
    return is_stack or not any(char.isalnum() for char in body)
