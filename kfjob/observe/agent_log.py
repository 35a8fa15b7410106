"""Reading torch's elastic agent: rendezvous blocks and happenings, from every line format of torch 2.0 to 2.15.

The forms (torch/_logging/_internal.py `TorchLogsFormatter` and `_default_formatter`; each line of a message gets the prefix,
except in the plain form, where only the first does):

    glog, 2.3 and later            I1121 06:18:58.464000 1 torch/distributed/elastic/agent/server/api.py:552]   group_rank=1
    bracketed, 2.1 and 2.2         [2026-11-21 06:29:28,733] torch.distributed.elastic.agent.server.api: [INFO]   group_rank=1
    plain, 2.0, TORCH_LOGS_FORMAT  INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous complete for workers…
    etcd_rendezvous.py, all        INFO 2026-11-21 06:34:22,030 Attempting to join next rendezvous

The reader is a state machine that is fed one line at a time. Lines must be whole: a `group_rank=1` that was cut from
`group_rank=12` cannot be told from a true one.
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kfjob.observe.agent_records import (
    FIELDS,
    INTEGERS,
    LISTS,
    AgentEvent,
    AgentEventKind,
    AgentRecord,
    LaunchConfig,
    RendezvousResult,
    Source,
)
from kfjob.observe.lines import clean_line
from kfjob.observe.timestamps import parse_glog, parse_rfc3339

MARKERS = ("elastic", "endezvous", "group_rank=")
"""A line without any of these matters only while a block is being read."""

HEADINGS = ("Rendezvous complete for workers", "Starting elastic_operator")
"""In the first line of the messages whose further lines matter."""

PATIENCE = 200
"""Lines of other processes that may stand inside a block before it counts as cut."""

ENOUGH = 3
"""Fields in the order of a block that make one, where neither heading nor prefix tells that an agent speaks."""

_GLOG = re.compile(r"[IWEFCV](\d{4}) (\d\d:\d\d:\d\d\.\d+) (\d+) \S*torch/distributed/[^\s:\]]+:\d+\](?: (.*))?$")
_WHEN = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+)"
_BRACKETED = re.compile(rf"\[{_WHEN}\] (?:\[[^\]]*\] )?torch\.distributed[\w.]*: \[[A-Z]+\](?: (.*))?$")
_PLAIN = re.compile(r"[A-Z]{4,8}:torch\.distributed[\w.]*:(.*)$")
_ETCD = re.compile(rf"(?:DEBUG|INFO|WARNING|ERROR) {_WHEN} (.*)$")
_UNKNOWN = re.compile(
    r"(.*?)(\[[^\]]*\] Rendezvous complete for workers\. Result:|Starting elastic_operator with launch configs?:)$"
)
_HEADER = re.compile(r"\[([^\]]*)\] Rendezvous complete for workers\. Result:$")
_FIELD = re.compile(rf"(?:(.*?)(\s\s))?\s*({'|'.join(FIELDS)})=(\S.*)$")
_SETTING = re.compile(r"(?:^|(.*?)\s)\s*(min_nodes|max_nodes|nproc_per_node|max_restarts|run_id|rdzv_\w+)\s+: (.*)$")
_DIGITS = re.compile(r"\d+")


class _Said(Struct, frozen=True):
    """One line taken apart: who says what, and when."""

    family: str  # glog | bracketed | plain
    lead: str  # what stands in front, its digits made equal; in the plain family it tells speakers apart
    pid: str
    message: str
    time: int | None
    yearless: int | None = None
    stamp: str = ""  # torch's own time: all lines of one message have the same

    def continues(self, other: _Said) -> bool:
        """Whether this line can belong to the message that `other` began."""
        return self.stamp == other.stamp and self.by_speaker_of(other)

    def by_speaker_of(self, other: _Said) -> bool:
        """Whether both lines can come from the same process: they have the same form."""
        if self.family != other.family or self.pid != other.pid:
            return False
        return self.family != "plain" or not self.lead or other.lead.startswith(self.lead)


class _Open(Struct, frozen=True):
    """A block or launch message that is being read."""

    said: _Said
    result: RendezvousResult | LaunchConfig
    headed: bool
    last: int  # number of the last line that belonged to it
    fields: int = 0

    @property
    def trusted(self) -> bool:
        """Whether the fields can only come from an agent: under a heading, in torch's line form, or several in a row."""
        return self.headed or self.said.family != "plain" or self.fields >= ENOUGH

    def awaits(self, name: str, said: _Said) -> bool:
        """Whether this field can be the block's next: its fields come in order, and without a heading none may be missing."""
        if not isinstance(self.result, RendezvousResult):
            return False
        known = [index for index, field in enumerate(FIELDS) if getattr(self.result, field) not in (None, ())]
        newest = known[-1] if known else -1
        if self.headed or said.family != "plain":
            return FIELDS.index(name) > newest
        return FIELDS.index(name) == newest + 1 and said.lead == self.said.lead


class AgentLog(Struct, frozen=True):
    """How far the log of one container is read. Empty at its first line."""

    open: tuple[_Open, ...] = ()

    def feed(self, number: int, text: str, time: int | None = None) -> tuple[AgentLog, tuple[AgentRecord, ...]]:
        """Read line `number`, taken up at `time`. A block is told anew with each of its fields: the same `line`, more known."""
        if not self.open and not any(marker in text for marker in MARKERS):
            return self, ()
        text, stamped = clean_line(text)
        said = _take_apart(text, time if time is not None else stamped)
        waiting = tuple(one for one in self.open if number - one.last <= PATIENCE)
        if started := _heading(said, number):
            others = tuple(one for one in waiting if not said.by_speaker_of(one.said))
            return AgentLog((*others, started)), ()
        if read := _field(waiting, said, number, text):
            return read
        return AgentLog(waiting) if waiting != self.open else self, _happening(said, number, text)


def _take_apart(text: str, time: int | None) -> _Said:
    """Find torch's prefix wherever it stands: a progress bar without a line end may be in front of it."""
    if "torch/distributed/" in text and (found := _GLOG.search(text)):
        yearless = parse_glog(found[1], found[2]) if time is None else None
        return _Said("glog", "", found[3], found[4] or "", time, yearless, stamp=found[1] + found[2])
    if "torch.distributed" in text:
        if found := _BRACKETED.search(text):
            moment = parse_rfc3339(found[1]) if time is None else time
            return _Said("bracketed", "", "", found[2] or "", moment, stamp=found[1])
        if found := _PLAIN.search(text):
            return _Said("plain", _level(text[: found.start()]), "", found[1], time)
    if found := _ETCD.search(text):
        return _Said("plain", _level(text[: found.start()]), "", found[2], parse_rfc3339(found[1]) if time is None else time)
    if found := _UNKNOWN.match(text):
        return _Said("plain", _level(found[1]), "", found[2], time)
    return _Said("plain", "", "", text, time)


def _level(lead: str) -> str:
    """What stands in front of a message, with its numbers made equal."""
    return _DIGITS.sub("#", lead).strip()


def _heading(said: _Said, number: int) -> _Open | None:
    """The block or launch message that this line begins."""
    if found := _HEADER.match(said.message):
        result = RendezvousResult(role=found[1], line=number, time=said.time, yearless=said.yearless)
        return _Open(said, result, headed=True, last=number)
    if said.message.startswith("Starting elastic_operator with launch config"):
        return _Open(said, LaunchConfig(line=number), headed=True, last=number)
    return None


def _field(waiting: tuple[_Open, ...], said: _Said, number: int, text: str) -> tuple[AgentLog, tuple[AgentRecord, ...]] | None:
    """Take up one field of an open message, or of a block whose heading was cut off."""
    if found := _FIELD.match(said.message):
        if said.family == "plain":
            if not found[2]:
                return None  # anybody can print `group_rank=1`, an agent sets two spaces before it
            said = replace(said, lead=_level(found[1]))
        owner = next((one for one in waiting if said.continues(one.said) and one.awaits(found[3], said)), None)
        if owner is None:
            lost = RendezvousResult(line=number, time=said.time, yearless=said.yearless)
            owner = _Open(said, lost, headed=False, last=number)
        return _taken(waiting, owner, _block_value(found[3], found[4], text), number)
    if found := _SETTING.match(said.message):
        said = replace(said, lead=_level(found[1] or "")) if said.family == "plain" else said
        owner = next((one for one in waiting if said.continues(one.said) and isinstance(one.result, LaunchConfig)), None)
        return _taken(waiting, owner, _setting(found[2], found[3]), number) if owner else None
    return None


def _taken(
    waiting: tuple[_Open, ...], owner: _Open, values: dict[str, Any], number: int
) -> tuple[AgentLog, tuple[AgentRecord, ...]]:
    """The state after `owner` took these values; what is known of it is told as soon as it can be trusted."""
    result = replace(owner.result, **values)
    grown = replace(owner, result=result, last=number, fields=owner.fields + len(values))
    others = tuple(one for one in waiting if not grown.said.by_speaker_of(one.said))
    if isinstance(result, LaunchConfig):
        return AgentLog((*others, grown)), (result,)
    known = (result,) if grown.trusted and result.group_rank is not None and values else ()
    return AgentLog(others if result.complete else (*others, grown)), known


def _block_value(name: str, value: str, text: str) -> dict[str, Any]:
    """The field's value, or nothing where the line was cut or holds no number."""
    value = value.strip()
    if name in INTEGERS:
        values: dict[str, Any] = {name: int(value)} if value.isdecimal() else {}
        return values | {"quote": text.strip()} if name == "group_rank" and values else values
    if name in LISTS:
        ranks = re.fullmatch(r"\[(\d+(?:, ?\d+)*)\]", value)
        return {name: tuple(map(int, ranks[1].split(",")))} if ranks else {}
    return {name: value} if value != "None" and " " not in value else {}


def _setting(name: str, value: str) -> dict[str, Any]:
    """One line of the launch message."""
    value = value.strip()
    if name == "rdzv_configs":
        rank = re.search(r"'rank': (\d+)", value)
        return {"node_rank": int(rank[1])} if rank else {}
    if name in ("run_id", "rdzv_backend", "rdzv_endpoint"):
        return {name: value}
    return {name: int(value)} if value.isdecimal() else {}


_PATTERNS: tuple[tuple[AgentEventKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (AgentEventKind.RENDEZVOUS, r"\[[^\]]*\] Rendezvous'ing worker group"),
        (AgentEventKind.STARTED, r"\[[^\]]*\] Starting worker group"),
        (AgentEventKind.RESTARTING, r"\[[^\]]*\] Worker group \w+\. (?P<attempts_left>\d+)/(?P<attempts>\d+) attempts left"),
        (AgentEventKind.MEMBERSHIP, r"\[[^\]]*\] Detected (?P<nodes>\d+) new nodes from group_rank=\d+"),
        (
            AgentEventKind.WORKER_FAILED,
            r"failed \(exitcode: (?P<exit_code>-?\d+)\) local_rank: (?P<local_rank>\d+) \(pid: \d+\)",
        ),
        (AgentEventKind.STOPPING, r"\[[^\]]*\] Stopping worker group"),
        (AgentEventKind.SUCCEEDED, r"\[[^\]]*\] worker group successfully finished"),
        (AgentEventKind.SIGNAL_RECEIVED, r"Received (?P<signal>\S+) death signal, shutting down workers"),
        (AgentEventKind.SIGNAL_RECEIVED, r"Got termination signal: (?P<signal>\S+)"),
        (AgentEventKind.SIGNAL_SENT, r"Sending process \d+ closing signal (?P<signal>\S+)"),
        (AgentEventKind.CLOSED, r"The node '[^']*' has closed the rendezvous"),
        (AgentEventKind.FAILED, r"torch\.distributed\.elastic\.[\w.]*Rendezvous\w*Error\b"),
        (AgentEventKind.FAILED, r"torch\.distributed\.elastic\.[\w.]*ChildFailedError\b"),
    )
)
_JOINED = re.compile(
    r"The node '.+?_\d+_\d+' has joined round \d+ of .* as rank (?P<rank>\d+) in a world of size (?P<size>\d+)\."
)
_ETCD_JOINED = re.compile(r"Joined rendezvous version \d+ as rank (?P<rank>\d+)\. Full state: ")


def _happening(said: _Said, number: int, text: str) -> tuple[AgentRecord, ...]:
    """What else the agent tells in this line."""
    message = said.message
    place: dict[str, Any] = {"line": number, "time": said.time, "yearless": said.yearless}
    if "torchelastic.worker.status." in message:
        return _console_event(message, place)
    for source, pattern in ((Source.NODE, _JOINED), (Source.ETCD, _ETCD_JOINED)):
        if found := pattern.search(message):
            size = found.groupdict().get("size")
            return (
                RendezvousResult(
                    source=source,
                    group_rank=int(found["rank"]),
                    group_world_size=int(size) if size else None,
                    quote=text.strip(),
                    **place,
                ),
            )
    for kind, pattern in _PATTERNS:
        if found := pattern.search(message):
            numbers: dict[str, Any] = {
                name: value if name == "signal" else int(value) for name, value in found.groupdict().items()
            }
            return (AgentEvent(kind=kind, text=message.strip(), **place, **numbers),)
    return ()


def _console_event(message: str, place: dict[str, Any]) -> tuple[AgentRecord, ...]:
    """A JSON event of `--event-log-handler console`: the start of a worker tells its ranks (api.py `_construct_event`)."""
    try:
        event = json.loads(message[message.index("{") :])
        facts = event["metadata"]
        if event["source"] != "WORKER" or facts["state"] != "START":
            return ()
        more = json.loads(facts["metadata"])
        return (
            RendezvousResult(
                source=Source.EVENT,
                role=str(facts["role"]),
                restart_count=int(facts["agent_restarts"]),
                group_rank=int(facts["group_rank"]),
                group_world_size=int(more["group_world_size"]),
                global_ranks=(int(facts["global_rank"]),),
                local_ranks=tuple(more["local_rank"]),
                quote=message.strip(),
                **place,
            ),
        )
    except (ValueError, KeyError, TypeError):
        return ()
