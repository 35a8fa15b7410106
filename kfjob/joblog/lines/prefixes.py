"""What log tools, launchers and loggers put before the message of a line.

    2026-11-21T06:18:58Z stdout F [rank0]:2026-11-21 06:18:58,464 - trainer - WARNING - disk is nearly full
    `------- log tool ----------'`launcher'`---------------- logger ------------------' `---- message ----'

Log tools and launchers put theirs before every line; a logger names time, level and rank before the first line of a message.
All patterns are bounded or possessive, so that every function takes time that is linear in the length of the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Flag, IntEnum, auto
from functools import lru_cache
from typing import NamedTuple

from kfjob.base.printable import NARROW_SEQUENCE
from kfjob.joblog.lines.line_text import cut_line, mask_digits
from kfjob.joblog.lines.meanings import Phase, Quantity, find_meaning, find_phase, is_count, split_name
from kfjob.joblog.lines.timestamps import parse_rfc3339
from kfjob.joblog.lines.vocabulary import EVALUATION_WORDS

MAX_PARTS = 16
"""Parts to remove of a line's prefix, such as a time or a level."""
_MAX_STAMPS = 8
"""Prefixes of log tools to remove from a line."""
_MAX_PROCESS_PARTS = 4
"""Prefixes of launchers to remove from a line."""
_MAX_LAYOUT = 600
"""Characters of a line whose layout is remembered."""
_MAX_LAYOUTS = 4096
"""Layouts of lines whose prefix is remembered."""


class Level(IntEnum):
    """The importance that a logger gives to a message."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class Prefix(NamedTuple):
    """What stands before a message."""

    has_stamp: bool = False  # it has a time
    level: Level | None = None
    is_glog: bool = False  # the level is a letter, as C++ libraries and torch's agents write it
    rank: int | None = None
    is_local_rank: bool = False  # the rank counts the processes of one pod
    tags: tuple[str, ...] = ()  # lower-case words in brackets, such as `eval`
    varying: int = 0  # characters up to the end of its last time or rank, which differ in repetitions of a message

    def with_rank(self, rank: int) -> Prefix:
        """Return the prefix with another rank."""
        return Prefix(self.has_stamp, self.level, self.is_glog, rank, self.is_local_rank, self.tags, self.varying)


_LEVELS = {
    **dict.fromkeys(("TRACE", "DEBUG"), Level.DEBUG),
    **dict.fromkeys(("INFO", "NOTICE", "SUCCESS", "LOG", "I"), Level.INFO),
    **dict.fromkeys(("WARN", "WARNING", "W"), Level.WARNING),
    **dict.fromkeys(("ERROR", "CRITICAL", "FATAL", "E", "F", "C"), Level.ERROR),
}
_CAPITALS = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|SUCCESS|CRITICAL|FATAL|LOG)"
_LEVEL = rf"(?:{_CAPITALS}|trace|debug|info|warning)"
_CLOCK = r"\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?"
_STAMP = (
    rf"(?:\d{{4}}[-/]\d\d[-/]\d\d|\d\d[-/]\d\d[-/]\d{{2,4}}|\d\d[-/]\d\d)[T ,_-]{{1,2}}{_CLOCK}"
    r"(?:Z|[+-]\d\d:?\d\d)?(?=[\s:|,;\]-]|$)"
    rf"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d+ {_CLOCK}(?: \d{{4}})?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d+)?(?=[\s|\]-])(?! ?[<\d])"
)
_ROLE = r"[a-z_]\w{0,30}?\d{1,6}"
_RANK_WORD = "g?rank|gpu|worker|proc(?:ess)?|r"
_OF_WORLD = r" ?/ ?\d{1,6}"
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_FAULT = r"[\w.]{0,200}(?:Error|Exception|Interrupt|Exit|Timeout)"
_BEFORE_ERROR = rf"\[rank|\[default|Traceback \(|{_FAULT}(?::|$)"


class _Writer(Flag):
    """Who puts something before a message."""

    TOOL = auto()  # a log tool, before every line
    LAUNCHER = auto()  # before every line of a process
    LOGGER = auto()  # before the first line of a message
    NEAR = LAUNCHER | LOGGER


_SHAPES = (
    (_Writer.TOOL, r"\[pod/[^\]\s]+\] "),  # kubectl logs --prefix
    (_Writer.TOOL, rf"(?P<time>{_TIME}) (?:(?:stdout|stderr) [FP] )?"),  # containerd
    (_Writer.NEAR, r"\[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err)>:?"),  # mpirun --tag-output
    (_Writer.NEAR, rf"(?P<label>\d{{1,6}}):(?=[ \t]+{_LEVEL}\b| (?:{_BEFORE_ERROR}))"),  # srun --label
    (_Writer.LAUNCHER, r"\d{1,6}:(?=   )"),  # srun --label, before a line of a traceback
    (_Writer.LAUNCHER, rf"\[(?P<inside>{_ROLE})\]:?"),  # torch; torchrun --tee, with the role of the process
    (_Writer.LAUNCHER, r"\((?P<within>(?:[\w.]{1,80} )?pid=\d{1,9}(?:, ip=[\d.]{1,40})?)\)"),  # Ray
    (_Writer.LOGGER, rf"(?P<stamp>{_STAMP})"),
    (_Writer.LOGGER, rf"(?P<level>{_LEVEL})(?=[\s:|\]])(?::[A-Za-z_][\w.]*+:)?"),
    (_Writer.LOGGER, rf"(?P<glog>[IWEFCV])\d{{4}} {_CLOCK}(?: +\d+ [\w./-]{{1,80}}:\d+\])?"),
    (_Writer.LOGGER, r"\[(?P<inside>[^\[\]\r\n]{1,160})\]:?"),
    (_Writer.LOGGER, r"\((?P<within>[^()\r\n]{1,80})\):?(?=\s)"),
    (
        _Writer.LOGGER,
        (
            rf"(?i:(?P<name>{_RANK_WORD}))[ :=_#-]{{0,2}}(?P<number>\d{{1,6}})"
            rf"(?:{_OF_WORLD}|(?![ \t]*[:=] *[-+.\d]))(?=[\s:|\]])"
        ),
    ),
    (_Writer.NEAR, rf"(?!{_FAULT}:)[\w.-]{{1,80}}:(?= (?:{_BEFORE_ERROR}|  File \"))"),  # pdsh, DeepSpeed, accelerate
    (_Writer.LOGGER, r"[A-Za-z_][\w./-]*+:[A-Za-z_<][\w.<>]*+:\d++(?=[ \t]+-)"),  # loguru: module:function:line
    (_Writer.LOGGER, r"(?P<host>[\w.-]{2,60}:\d{1,5})(?=\s+[\w.]+:\d+\s)"),  # host:rank
    (_Writer.LOGGER, rf"(?P<source>[A-Za-z_][\w.]*+(?:\.py)?:\d++)(?=[ \t]+(?:-|{_LEVEL}))"),  # file:line
    (_Writer.LOGGER, rf"[A-Za-z_][\w.]*+(?::?(?=[ \t]+\[?{_CAPITALS}[\s:|\]])|(?= - )(?! - *[\d(]))"),  # logger name
)
"""What may stand before a message: who writes it, and its pattern. Of several that fit, the first one counts."""


def _join_shapes(writer: _Writer) -> str:
    return "|".join(pattern for writers, pattern in _SHAPES if writer in writers)


_TOOL_PARTS = re.compile(_join_shapes(_Writer.TOOL))
_PROCESS_PARTS = re.compile(rf"(?:{_join_shapes(_Writer.LAUNCHER)}) ?")
_PARTS = re.compile(rf"[ \t:|>*-]*+(?:{_join_shapes(_Writer.LOGGER)})(?:[ \t]*[:|>-]+(?=\s))?")
_BRACKETED_STAMP = re.compile(rf"[IWEFCV]\d{{4}} \d\d:|{_STAMP}")
_BRACKETED_LEVEL = re.compile(rf"^([IWEFCV])(?:\d{{4}} \d\d:| \S+:\d+$)|\b({_LEVEL})\b")
_NAMED_ROLE = re.compile(r"([a-z_]\w{0,30}?)(\d{1,6})")
_COUNT = re.compile(r"[\s\d/,.%()|;]*|\d+: [\s\d/]+")
_LOCAL_NAMES = frozenset({"default", "worker", "gpu"})
_RANK_NAME = re.compile(
    rf"(?i)^(?:global[ _]?)?({_RANK_WORD}|default)(?:[ :=_]*|-)(\d{{1,6}})(?:{_OF_WORLD})?(?:, ?local_rank[ :=]\d{{1,6}})?$"
)
_RANK_OF = re.compile(r"^(\d{1,6})/(\d{1,6})$")
_DIGIT = re.compile(r"\d")
_PAIR = re.compile(
    r"(?i)(?<![^\W\d])([^\W\d]\w{0,20}+(?:[/. @-]{1,2}\w{1,20}+){0,2}?)[ \t]{0,4}[:=#]?[ \t]{0,16}"
    r"(?<![\w.])([-+]?(?:\d++(?>(?:[.,]\d++)*)(?:\.(?!\w))?(?:e[-+]?\d+)?|nan|inf)(?!\w))"
)
"""It matches a name and a number, as in `[ep 0 it 12]`."""
_WORD = re.compile(r"[A-Za-z]+")


_Match = Callable[[str, int], re.Match[str] | None]
"""A function that matches one part at a position of a line."""


def clean_line(text: str) -> tuple[str, int | None]:
    """Return the line without colours, line end and prefixes of kubectl or containerd, and the time in such a prefix."""
    text = cut_line(text)
    if "\x1b" in text:
        text = re.sub(NARROW_SEQUENCE, "", text)
    text = text.rstrip("\r\n")
    return strip_stamps(text)


def strip_stamps(text: str) -> tuple[str, int | None]:
    """Return the line without the prefixes of kubectl and containerd, and the time in them."""
    parts = _find_parts(_TOOL_PARTS.match, text, _MAX_STAMPS)
    times = [part["time"] for part in parts if part["time"]]
    return (text[parts[-1].end() :] if parts else text), parse_rfc3339(times[-1]) if times else None


def split_process(text: str) -> tuple[str, str]:
    """Return the prefix in which the launcher names the process, and the rest of the line.

    Lines with the same prefix are one stream. The labels of srun and pdsh count only before a message with a level and before a
    line of an error: any program may begin a line with a number or a word.
    """
    parts = _find_parts(_PROCESS_PARTS.match, text, _MAX_PROCESS_PARTS)
    end = parts[-1].end() if parts else 0
    return text[:end].rstrip(), text[end:]


def split_prefix(text: str) -> tuple[Prefix, str]:
    """Return the prefix of a line, and its message with the indentation."""
    if len(text) > _MAX_LAYOUT or not text.isascii():
        prefix, _, end = _find_prefix(text)
    else:
        prefix, rank, end = _find_prefix_layout(mask_digits(text.encode()))
        if rank is not None:
            prefix = prefix.with_rank(int(text[rank]))
    return (prefix, text[end:].removeprefix(" ")) if end else (prefix, text)


@lru_cache(maxsize=_MAX_LAYOUTS)
def _find_prefix_layout(masked: bytes) -> tuple[Prefix, slice | None, int]:
    """Return the prefix of a line whose digits are ones: programs print millions of lines with few layouts."""
    return _find_prefix(masked.decode())


def _find_prefix(text: str) -> tuple[Prefix, slice | None, int]:
    """Return the prefix of a line, the place of the rank in it, and its end."""
    parts = _find_parts(_PARTS.match, text, MAX_PARTS)
    ranks = [place for place, part in enumerate(parts) if _find_rank(part)]
    if ranks[1:] and _RANK_OF.match(parts[ranks[-1]]["within"] or ""):
        del parts[ranks[-1] :]  # `[proc 0](100/24000)`: the step
    return (*_read_parts(parts), parts[-1].end()) if parts else (Prefix(), None, 0)


def _find_parts(match_part: _Match, text: str, limit: int) -> list[re.Match[str]]:
    """Return the parts that this function matches before the message, up to the first one that counts something."""
    parts: list[re.Match[str]] = []
    position = 0
    while len(parts) < limit and (match := match_part(text, position)) and not _holds_counter(match):
        parts.append(match)
        position = match.end()
    return parts


def _holds_counter(match: re.Match[str]) -> bool:
    """Return whether the part counts something, such as `[10/500]` or `[step=10]`."""
    fields = match.groupdict()
    inside = next((fields[name] for name in ("inside", "within", "source", "host") if fields.get(name)), None)
    if inside is None:
        return False
    if fields.get("within") and _RANK_OF.match(inside):
        return False
    has_total = " / " in inside and not _RANK_NAME.match(inside.strip())  # `[train: 1, 50 / 1000]`
    return has_total or _COUNT.fullmatch(inside) is not None or _holds_figure(_DIGIT.sub("1", inside))


@lru_cache(maxsize=1024)
def _holds_figure(inside: str) -> bool:
    """Return whether the text has a name and a number that the general reader understands; its digits are ones."""
    if (role := _NAMED_ROLE.fullmatch(inside)) and _counts(split_name(role[1])):
        return True
    for pair in _PAIR.finditer(inside):
        words = split_name(pair[1])
        meaning = find_meaning(words)
        if meaning is None or meaning.quantity is Quantity.RANK:
            continue
        if _counts(words) or not pair[2].isdigit() or meaning.quantity is Quantity.SPEED:
            return True
    return False


def _counts(words: tuple[str, ...]) -> bool:
    """Return whether the name counts steps or epochs; a letter in brackets is a level, or names a host."""
    return is_count(words) and len(words[-1]) > 1


def _read_parts(parts: list[re.Match[str]]) -> tuple[Prefix, slice | None]:
    """Return what the parts say, and the place of the rank in the line."""
    has_stamp, letters, rank, is_local_rank, tags, varying = False, "", None, False, [], 0
    for match in parts:
        is_stamp = match["stamp"] or match["glog"]
        letters = letters or match["level"] or match["glog"] or ""
        if inside := match["inside"]:
            bracketed = _BRACKETED_LEVEL.search(inside)
            is_stamp = _BRACKETED_STAMP.match(inside) or (bracketed and bracketed[1])
            letters = letters or (bracketed[1] or bracketed[2] if bracketed else "")
            words = _WORD.findall(inside)
            tags += [words[0].lower()] if len(words) == 1 else []
        if (number := _find_rank(match)) is not None:
            rank, is_local_rank = number
        if is_stamp or number:
            varying = match.end()
        has_stamp = has_stamp or bool(is_stamp)
    value = None if rank is None else int(parts[0].string[rank])
    level = _LEVELS.get(letters.upper())
    return Prefix(has_stamp, level, len(letters) == 1, value, is_local_rank, tuple(tags), varying), rank


def _find_rank(match: re.Match[str]) -> tuple[slice, bool] | None:
    """Return the place of the rank that a part names, and whether it is one within a pod."""
    for group in ("number", "label", "mpi"):
        if match[group]:
            return slice(*match.span(group)), (match["name"] or "").lower() in _LOCAL_NAMES
    start = match.start("within" if match["inside"] is None else "inside")
    inside = match["inside"] or match["within"] or ""
    start += len(inside) - len(inside.lstrip())
    if name := _RANK_NAME.match(inside.strip()):
        return slice(start + name.start(2), start + name.end(2)), name[1].lower() in _LOCAL_NAMES
    if match["within"] is not None and (of := _RANK_OF.match(inside.strip())):
        return slice(start, start + of.end(1)), False
    role = _NAMED_ROLE.fullmatch(inside) if match.pos == 0 and match["inside"] and match[0].rstrip().endswith(":") else None
    return (slice(start + role.start(2), start + role.end(2)), True) if role else None


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
