"""Literals of which every line that the diagnosis needs contains one, generated from the rules and the incident stage."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ahocorasick_rs import AhoCorasick, Implementation

from kfjob.joblog.diagnose.engine.program_reports import SUCCESS_LITERALS
from kfjob.joblog.diagnose.engine.rank_reports import WORLD_SIZE_LITERALS
from kfjob.joblog.diagnose.engine.tracebacks import CRASH_MARKERS, HEADING, MAX_LINES, TRACEBACK_MARKERS
from kfjob.joblog.diagnose.rule import Subject
from kfjob.joblog.diagnose.rules import BY_SUBJECT

STEMS = (
    "rror", "xception", "raceback", "Warning", "warning", "WARN", "[W", "ailed", "annot", "c10d]", "ignal", "endezvous", "etcd",
    "illed", "enied", "No such", "ffer", "py_callstack", '", line ', "╰─", "  time  ", "time      :", "]:W",
)  # fmt: skip
"""Literals of lines without a rule: exceptions, frames, boxes, warnings, and times in torchrun's summary. They also stand in
most literals of the rules, and replace those."""

LINES_AFTER = {
    HEADING: MAX_LINES,
    "terminate called": 4,
    "Last error:": 2,
    "Error: ": 8,
    "╰─": 4,
}
"""Literals of a first line, and how many lines after it may belong to its incident."""

_LINE_STARTS = ("W", "[W")
"""Beginnings of other lines that the diagnosis needs."""


@cache
def find_literals() -> tuple[str, ...]:
    """Return the literals of all rules about logs, of the incident stage, of reports of success, and of world sizes."""
    literals = [literal for rule in BY_SUBJECT[Subject.LOG] for literal in rule.literals]
    stages = (*TRACEBACK_MARKERS, *CRASH_MARKERS, *SUCCESS_LITERALS, *WORLD_SIZE_LITERALS)
    return _minimize((*STEMS, *stages, *literals))


def is_suspicious(line: str) -> bool:
    """Return whether the line can belong to an incident."""
    return line.startswith(_LINE_STARTS) or bool(_build_automaton().find_matches_as_indexes(line))


@cache
def _build_automaton() -> AhoCorasick:
    return AhoCorasick(find_literals(), implementation=Implementation.DFA)


def _minimize(literals: Iterable[str]) -> tuple[str, ...]:
    """Return the literals without those that contain another one."""
    kept: list[str] = []
    for literal in sorted(set(literals), key=lambda text: (len(text), text)):
        if not any(shorter in literal for shorter in kept):
            kept.append(literal)
    return tuple(kept)
