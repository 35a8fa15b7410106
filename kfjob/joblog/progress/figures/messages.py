"""The message of a line, without its prefix, and what the prefix says about its figures."""

from __future__ import annotations

import re
from typing import NamedTuple

from kfjob.joblog.lines.meanings import Phase, find_phase
from kfjob.joblog.lines.prefixes import split_prefix
from kfjob.joblog.lines.vocabulary import EVALUATION_WORDS

_TAG = re.compile(r"[ \t|>*-]*+([A-Za-z_]+)[ \t]*\|(?=\s)[ \t:]*")
"""It matches `valid | `, which names the phase of the figures after it."""


class Message(NamedTuple):
    """A line without its prefix."""

    text: str
    rank: int | None = None  # as the prefix names it
    phase: Phase = Phase.NONE  # a prefix such as `[EVAL]` or `| valid |`


def find_message(text: str) -> Message:
    """Return the message in a line, the rank that its prefix names, and whether it names evaluation."""
    prefix, rest = split_prefix(text)
    if not rest or rest.isspace():
        return Message(text)  # `['loss', 2.3]`
    tags = prefix.tags
    if (match := _TAG.match(rest)) and find_phase((match[1].lower(),)) is not Phase.NONE:
        rest, tags = rest[match.end() :], (*tags, match[1].lower())
    phase = Phase.EVALUATION if not EVALUATION_WORDS.isdisjoint(tags) else Phase.NONE
    return Message(text if rest is text else rest.lstrip(" \t:"), prefix.rank, phase)
