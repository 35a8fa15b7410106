"""This module removes what loggers, launchers and log tools put before a message: time, level, logger name, rank."""

from __future__ import annotations

import re
from typing import NamedTuple

from kfjob.observe.general.vocabulary import EVALUATION_WORDS, Phase, find_phase

MAX_PREFIXES = 16
"""Logger prefixes that the general reader removes from a line."""

_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|SUCCESS|CRITICAL|FATAL|LOG|trace|debug|info|warning)"
_CLOCK = r"\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?"
_PREFIX = re.compile(
    r"[ \t|>*-]*(?:"
    r"(?:\d{4}[-/]\d\d[-/]\d\d|\d\d[-/]\d\d[-/]\d{2,4}|\d\d[-/]\d\d)[T ,_-]{1,2}"
    + _CLOCK
    + r"(?:Z|[+-]\d\d:?\d\d)?(?=[\s:|,;\]-]|$)"
    r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d+ " + _CLOCK + r"(?: \d{4})?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d+)?(?=[\s|\]-])(?! ?[<\d])"
    r"|" + _LEVEL + r"(?=[\s:|\]])(?::[A-Za-z_][\w.]*+:)?"
    r"|[IWEF]\d{4} " + _CLOCK + r" +\d+ [\w./-]{1,80}:\d+\]"  # glog
    r"|(?P<bracket>\[(?P<inside>[^\[\]\r\n]{1,160})\]):?"
    r"|(?P<paren>\((?P<within>[^()\r\n]{1,80})\)):?(?=\s)"
    r"|(?P<named>(?i:g?rank|gpu|worker|proc(?:ess)?|r)[ :=_#-]{0,2}(?P<number>\d{1,6}))(?=[\s:|\]])(?![ \t]*[:=] *[-+.\d])"
    r"|(?P<leading>\d{1,6}):(?=[ \t]+" + _LEVEL + r"\b)"
    r"|[A-Za-z_][\w./-]*+:[A-Za-z_<][\w.<>]*+:\d++(?=[ \t]+-)"  # loguru: module:function:line
    r"|(?P<host>[\w.-]{1,60}:\d{1,5})(?=\s+[\w.]+:\d+\s)"  # host:rank
    r"|(?P<source>[A-Za-z_][\w.]*+(?:\.py)?:\d++)(?=[ \t]+(?:-|" + _LEVEL + r"))"  # file:line
    r"|[A-Za-z_][\w.]*+(?= - )(?![\w.]*+ - *[\d(])"  # logger name
    r"|(?P<phase>[A-Za-z_]+)(?= \|)"
    r")(?:[ \t]*[:|>-]+(?=\s))?[ \t:]*"
)
_RANK_NAME = re.compile(r"(?i)^(?:global[ _]?)?(?:rank|default|worker|gpu)[ :=_-]*(\d{1,6})$")
_RANK_OF = re.compile(r"^(\d{1,6})/(\d{1,6})$")
_COUNTER = re.compile(
    r"^[\s\d/,.%()]*$|(?i:\b(?:\w*_step|g?step|epochs?|iter\w*|batch|loss|lr|update|round|tick|episode|generation|pass|ep)s?\b\s*[:=#\[(]?\s*\d|\b(?:step|epoch|iter)\w*\s*[:=])"
)
_WORD = re.compile(r"[A-Za-z]+")


class Message(NamedTuple):
    """A line without its prefixes."""

    text: str
    rank: int | None = None  # as the prefix names it
    phase: Phase = Phase.NONE  # a prefix such as `[EVAL]` or `| valid |`


def strip_prefixes(text: str) -> Message:
    """Return the message in a line, the rank that its prefixes name, and whether they name evaluation."""
    position, rank, phase = 0, None, Phase.NONE
    for _ in range(MAX_PREFIXES):
        match = _PREFIX.match(text, position)
        if match is None or match.end() == position or _holds_counter(match, first=position == 0):
            break
        number = _find_rank(match)
        rank = number if number is not None else rank
        phase = _find_prefix_phase(match) or phase
        position = match.end()
    return Message(text[position:], rank, phase)


def _holds_counter(match: re.Match[str], *, first: bool) -> bool:
    """Return whether the part in brackets counts something, such as `[10/500]` or `[step=10]`."""
    inside = match["inside"] or match["within"] or match["source"] or match["host"]
    if inside is None:
        return match["phase"] is not None and find_phase((match["phase"].lower(),)) is Phase.NONE
    if match["within"] is not None and first and (of := _RANK_OF.match(inside)):
        return not 0 <= int(of[1]) < int(of[2])
    return bool(_COUNTER.search(inside))


def _find_rank(match: re.Match[str]) -> int | None:
    if match["number"] or match["leading"]:
        return int(match["number"] or match["leading"])
    inside = (match["inside"] or match["within"] or "").strip()
    if name := _RANK_NAME.match(inside):
        return int(name[1])
    if match["within"] is not None and (of := _RANK_OF.match(inside)):
        return int(of[1])
    return None


def _find_prefix_phase(match: re.Match[str]) -> Phase:
    words = [word.lower() for word in _WORD.findall(match["inside"] or match["phase"] or "")]
    return Phase.EVALUATION if len(words) == 1 and words[0] in EVALUATION_WORDS else Phase.NONE
