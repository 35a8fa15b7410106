"""Reader for the log of a torch elastic agent: rendezvous blocks, launch messages and events, torch 2.0 to 2.15.

Line formats (torch/_logging/_internal.py `TorchLogsFormatter` and `_default_formatter`). Every line of a message has the
prefix; in the plain format only the first line has it:

    glog, 2.3 and later            I1121 06:18:58.464000 1 torch/distributed/elastic/agent/server/api.py:552]   group_rank=1
    bracketed, 2.1 and 2.2         [2026-11-21 06:29:28,733] torch.distributed.elastic.agent.server.api: [INFO]   group_rank=1
    plain, 2.0, TORCH_LOGS_FORMAT  INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous complete for workers…
    etcd_rendezvous.py, all        INFO 2026-11-21 06:34:22,030 Attempting to join next rendezvous

The reader is a state machine that takes one whole line at a time: a `group_rank=12` that is cut to `group_rank=1` looks valid.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.parsing import parse_json
from kfjob.base.patterns import Pattern
from kfjob.joblog.agents.agent_records import (
    FIELDS,
    INTEGERS,
    LISTS,
    AgentEvent,
    AgentEventKind,
    AgentRecord,
    LaunchConfig,
    RendezvousResult,
    ResultSource,
)
from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.lines.timestamps import parse_glog, parse_rfc3339

MARKERS = ("elastic", "endezvous", "group_rank=")
"""A line without any of these is relevant only inside a block."""

HEADINGS = ("Rendezvous complete for workers", "Starting elastic_operator")
"""First lines of the messages that go on over several lines."""

MAX_FOREIGN_LINES = 200
"""Lines of other processes within a block of an agent; after more of them the block counts as cut."""

MIN_FIELDS = 3
"""Consecutive fields that identify a block without heading or torch prefix."""

SETTINGS = (
    *("entrypoint", "min_nodes", "max_nodes", "nproc_per_node", "run_id", r"rdzv_\w+", "max_restarts", "monitor_interval"),
    *("log_dir", "metrics_cfg", "event_log_handler", "numa_options", "signals_to_handle", r"duplicate_\w+_filters"),
)
"""Names in the launch message, as patterns."""
_READ_SETTINGS = [name for name in SETTINGS if name.startswith(("min_", "max_", "nproc", "run_id", "rdzv"))]

_GLOG_TIME = r"[IWEFCV](\d{4}) (\d\d:\d\d:\d\d\.\d+) (\d+)"
_TIME = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+)"
_BRACKETED_TIME = rf"\[{_TIME}\] (?:\[[^\]]*\] )?"
_LEVEL = "[A-Z]{4,8}"
_ETCD_TIME = rf"(?:DEBUG|INFO|WARNING|ERROR) {_TIME}"
_AGENT_MODULE = r"(?:elastic|launcher|run|launch)"
_AGENT_MESSAGE = Pattern(
    rf"{_GLOG_TIME} [^\s:\]]*torch/distributed/(?:elastic/|launcher/|run\.py|launch\.py)[^\s\]]*\]"
    rf"|{_BRACKETED_TIME}torch\.distributed\.{_AGENT_MODULE}[\w.]*: \["
    rf"|{_LEVEL}:torch\.distributed\.{_AGENT_MODULE}[\w.]*:"
)
_ETCD_MESSAGE = Pattern(
    rf"{_ETCD_TIME} (?:Creating EtcdStore as|Etcd machines: \[|Shutdown failed$"
    r"|Attempting to (?:join next rendezvous|destroy it\.)"
    r"|Rendezvous (?:timeout occurred in Etcd|for run_id=|attempt failed, will retry\.|version \S+ is (?:in)?complete\.)"
    r"|(?:New rendezvous state created|Observed existing rendezvous state): \{|Joined rendezvous version \d"
    r"|Rank \d+ (?:is responsible for|finished) join last call\.|Waiting for (?:remaining peers|confirmations from all peers)\."
    r"|All peers arrived\. Confirming membership\.|Added self to waiting list\. Rendezvous full state"
    r"|Previously existing rendezvous state changed\.|Destroyed rendezvous version|Keep-alive key \S+ is not renewed\."
    r"|[\w -]+ CAS unsuccessful, (?:retrying|will retry)|Join last-call (?:transition CAS|TTL refresh CAS) unsuccessful)"
)
"""Messages of torch/distributed/elastic/rendezvous/etcd_rendezvous.py."""

_WORKER_PREFIX = re.compile(r"\[(?:default|rank)\d+\]:")
"""What stands before a line of a worker: `[default0]:` by torchrun, `[rank0]:` by torch."""
_ETCD_STARTS = ("DEBUG ", "INFO ", "WARNING ", "ERROR ")
_BLOCK_LINE = Pattern(rf"  (?:(?:{'|'.join(FIELDS)})=|(?:{'|'.join(SETTINGS)}) +: )")

_GLOG = Pattern(rf"{_GLOG_TIME} \S*torch/distributed/[^\s:\]]+:\d+\](?: (.*))?$")
_BRACKETED = Pattern(rf"{_BRACKETED_TIME}torch\.distributed[\w.]*: \[[A-Z]+\](?: (.*))?$")
_PLAIN = Pattern(rf"{_LEVEL}:torch\.distributed[\w.]*:(.*)$")
_ETCD = Pattern(rf"{_ETCD_TIME} (.*)$")
_ANY_PREFIX = Pattern(
    r"(.*?)(\[[^\]]*\] Rendezvous complete for workers\. Result:|Starting elastic_operator with launch configs?:)$"
)
_HEADER = Pattern(r"\[([^\]]*)\] Rendezvous complete for workers\. Result:$")
_FIELD = Pattern(rf"(?:(.*?)(\s\s))?\s*({'|'.join(FIELDS)})=(\S.*)$")
_SETTING = Pattern(rf"(?:^|(.*?)\s)\s*({'|'.join(_READ_SETTINGS)})\s+: (.*)$")
_RANKS = Pattern(r"\[(\d{1,9}(?:, ?\d{1,9})*)\]$")
_STATIC_RANK = Pattern(r"'rank': (\d{1,9})")
_NUMBER = Pattern(r"\d{1,9}$")
_DIGITS = re.compile(r"\d+")


def find_agent_message(text: str) -> str | None:
    """Return the text before an agent's message in a plain line, such as a progress bar; None without a message."""
    match = _AGENT_MESSAGE.search(text) if "torch" in text else None
    return match.before if match else None


def is_etcd_message(text: str) -> bool:
    """Return whether the line is a message of the agent's etcd client."""
    return text.startswith(_ETCD_STARTS) and _ETCD_MESSAGE.match(text) is not None


class _Message(Struct, frozen=True):
    """One line, split into prefix and message."""

    form: str  # glog | bracketed | plain
    prefix: str  # text before the message with digits replaced by `#`; identifies the process in the plain form
    pid: str
    text: str
    time: int | None
    yearless: int | None = None
    torch_time: str = ""  # time that torch prints; the same in all lines of one message

    def continues(self, first: _Message) -> bool:
        """Return whether this line can belong to the message that starts with `first`."""
        return self.torch_time == first.torch_time and self.has_process_of(first)

    def has_process_of(self, other: _Message) -> bool:
        """Return whether both lines can come from the same process."""
        if self.form != other.form or self.pid != other.pid:
            return False
        return self.form != "plain" or not self.prefix or other.prefix.startswith(self.prefix)


class _Block(Struct, frozen=True):
    """A rendezvous block or a launch message that is not complete yet."""

    first: _Message
    result: RendezvousResult | LaunchConfig
    has_heading: bool
    last_line: int  # number of its last line so far
    field_count: int = 0

    @property
    def trusted(self) -> bool:
        """Whether only an agent can have printed it: it has a heading, torch's prefix, or several fields in a row."""
        return self.has_heading or self.first.form != "plain" or self.field_count >= MIN_FIELDS

    def expects(self, name: str, message: _Message) -> bool:
        """Return whether this field can come next: fields come in order, and without a heading none may be missing."""
        if not isinstance(self.result, RendezvousResult):
            return False
        known = [index for index, field in enumerate(FIELDS) if getattr(self.result, field) not in (None, ())]
        newest = known[-1] if known else -1
        if self.has_heading or message.form != "plain":
            return FIELDS.index(name) > newest
        return FIELDS.index(name) == newest + 1 and message.prefix == self.first.prefix


class AgentLog(Struct, frozen=True):
    """State of the reader within the log of one container; the default is the state before the first line."""

    blocks: tuple[_Block, ...] = ()

    def continues(self, text: str) -> bool:
        """Return whether the line, which has no prefix, can belong to a message of the agent that is not complete yet."""
        return bool(self.blocks) and text.startswith("  ") and _BLOCK_LINE.match(text) is not None

    def feed(self, number: int, text: str, time: int | None = None) -> tuple[AgentLog, tuple[AgentRecord, ...]]:
        """Read line `number` with the kubelet's `time`; return the new state and the records in the line.

        Every field of a block yields the record of the block again, with the same `line` and one more value.
        """
        if not self.blocks and not any(marker in text for marker in MARKERS):
            return self, ()
        is_workers = _WORKER_PREFIX.match(text) is not None  # a program may print that all went well
        text, prefix_time = clean_line(text)
        message = _parse_message(text, time if time is not None else prefix_time)
        blocks = tuple(block for block in self.blocks if number - block.last_line <= MAX_FOREIGN_LINES)
        if new := _start_block(message, number):
            others = tuple(block for block in blocks if not message.has_process_of(block.first))
            return AgentLog((*others, new)), ()
        if result := _read_field(blocks, message, number, text):
            return result
        records = _read_event(message, number, text)
        if is_workers:
            records = tuple(record for record in records if not is_success(record))
        return AgentLog(blocks) if blocks != self.blocks else self, records


def is_success(record: AgentRecord) -> bool:
    """Return whether an agent reports that its training processes have ended well."""
    return isinstance(record, AgentEvent) and record.kind is AgentEventKind.SUCCEEDED


def _parse_message(text: str, time: int | None) -> _Message:
    """Find torch's prefix anywhere in the line: a progress bar without a line end may precede it."""
    if "torch/distributed/" in text and (match := _GLOG.search(text)):
        yearless = parse_glog(match[1], match[2]) if time is None else None
        return _Message("glog", "", match[3], match[4] or "", time, yearless, torch_time=match[1] + match[2])
    if "torch.distributed" in text:
        if match := _BRACKETED.search(text):
            line_time = parse_rfc3339(match[1]) if time is None else time
            return _Message("bracketed", "", "", match[2] or "", line_time, torch_time=match[1])
        if match := _PLAIN.search(text):
            return _Message("plain", _mask_digits(match.before), "", match[1], time)
    if match := _ETCD.search(text):
        line_time = parse_rfc3339(match[1]) if time is None else time
        return _Message("plain", _mask_digits(match.before), "", match[2], line_time)
    if match := _ANY_PREFIX.match(text):
        return _Message("plain", _mask_digits(match[1]), "", match[2], time)
    return _Message("plain", "", "", text, time)


def _mask_digits(prefix: str) -> str:
    """Return the text before a message with `#` for every number, so that prefixes of one process are equal."""
    return _DIGITS.sub("#", prefix).strip()


def _start_block(message: _Message, number: int) -> _Block | None:
    """Return the block or launch message whose heading this line is."""
    if match := _HEADER.match(message.text):
        result = RendezvousResult(role=match[1], line=number, time=message.time, yearless=message.yearless)
        return _Block(message, result, has_heading=True, last_line=number)
    if message.text.startswith("Starting elastic_operator with launch config"):
        return _Block(message, LaunchConfig(line=number), has_heading=True, last_line=number)
    return None


def _read_field(
    blocks: tuple[_Block, ...], message: _Message, number: int, text: str
) -> tuple[AgentLog, tuple[AgentRecord, ...]] | None:
    """Add a field to its block, or to a new one if the heading is missing; return None if the line has no field."""
    if match := _FIELD.match(message.text):
        if message.form == "plain":
            if not match[2]:
                return None  # any program can print `group_rank=1`; an agent prints two spaces before it
            message = replace(message, prefix=_mask_digits(match[1]))
        owner = next((block for block in blocks if message.continues(block.first) and block.expects(match[3], message)), None)
        if owner is None:
            result = RendezvousResult(line=number, time=message.time, yearless=message.yearless)
            owner = _Block(message, result, has_heading=False, last_line=number)
        return _add_values(blocks, owner, _parse_field(match[3], match[4], text), number)
    if match := _SETTING.match(message.text):
        message = replace(message, prefix=_mask_digits(match[1] or "")) if message.form == "plain" else message
        launches = (block for block in blocks if message.continues(block.first) and isinstance(block.result, LaunchConfig))
        owner = next(launches, None)
        return _add_values(blocks, owner, _parse_setting(match[2], match[3]), number) if owner else None
    return None


def _add_values(
    blocks: tuple[_Block, ...], owner: _Block, values: dict[str, Any], number: int
) -> tuple[AgentLog, tuple[AgentRecord, ...]]:
    """Return the state with these values in `owner`, and the record of `owner` if it can be trusted."""
    result = replace(owner.result, **values)
    block = replace(owner, result=result, last_line=number, field_count=owner.field_count + len(values))
    others = tuple(other for other in blocks if not block.first.has_process_of(other.first))
    if isinstance(result, LaunchConfig):
        return AgentLog((*others, block)), (result,)
    records = (result,) if block.trusted and result.group_rank is not None and values else ()
    return AgentLog(others if result.complete else (*others, block)), records


def _parse_field(name: str, value: str, text: str) -> dict[str, Any]:
    """Return the value of a block's field; nothing if the line is cut or the value is not a number."""
    value = value.strip()
    if name in INTEGERS:
        values: dict[str, Any] = {name: int(value)} if _NUMBER.match(value) else {}
        return values | {"quote": text.strip()} if name == "group_rank" and values else values
    if name in LISTS:
        ranks = _RANKS.match(value)
        return {name: tuple(map(int, ranks[1].split(",")))} if ranks else {}
    return {name: value} if value != "None" and " " not in value else {}


def _parse_setting(name: str, value: str) -> dict[str, Any]:
    """Return the value in one line of the launch message."""
    value = value.strip()
    if name == "rdzv_configs":
        rank = _STATIC_RANK.search(value)
        return {"node_rank": int(rank[1])} if rank else {}
    if name in ("run_id", "rdzv_backend", "rdzv_endpoint"):
        return {name: value}
    return {name: int(value)} if _NUMBER.match(value) else {}


_PATTERNS: tuple[tuple[AgentEventKind, Pattern], ...] = tuple(
    (kind, Pattern(pattern))
    for kind, pattern in (
        (AgentEventKind.RENDEZVOUS, r"\[[^\]]*\] Rendezvous'ing worker group"),
        (AgentEventKind.STARTED, r"\[[^\]]*\] Starting worker group"),
        (
            AgentEventKind.RESTARTING,
            r"\[[^\]]*\] Worker group \w+\. (?P<attempts_left>\d{1,9})/(?P<attempts>\d{1,9}) attempts left",
        ),
        (AgentEventKind.MEMBERSHIP, r"\[[^\]]*\] Detected (?P<nodes>\d{1,9}) new nodes from group_rank=\d+"),
        (
            AgentEventKind.WORKER_FAILED,
            r"failed \(exitcode: (?P<exit_code>-?\d{1,9})\) local_rank: (?P<local_rank>\d{1,9}) \(pid: \d+\)",
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
_JOINED = Pattern(
    r"The node '.+?_\d+_\d+' has joined round \d+ of .* as rank (?P<rank>\d{1,9}) in a world of size (?P<size>\d{1,9})\."
)
_ETCD_JOINED = Pattern(r"Joined rendezvous version \d+ as rank (?P<rank>\d{1,9})\. Full state: ")


def _read_event(message: _Message, number: int, text: str) -> tuple[AgentRecord, ...]:
    """Return the event, or the result outside of a block, that this line reports."""
    position: dict[str, Any] = {"line": number, "time": message.time, "yearless": message.yearless}
    if "torchelastic.worker.status." in message.text:
        return _read_console_event(message.text, position)
    for source, pattern in ((ResultSource.NODE, _JOINED), (ResultSource.ETCD, _ETCD_JOINED)):
        if match := pattern.search(message.text):
            size = match.groupdict().get("size")
            return (
                RendezvousResult(
                    source=source,
                    group_rank=int(match["rank"]),
                    group_world_size=int(size) if size else None,
                    quote=text.strip(),
                    **position,
                ),
            )
    for kind, pattern in _PATTERNS:
        if match := pattern.search(message.text):
            numbers: dict[str, Any] = {
                name: value if name == "signal" else int(value) for name, value in match.groupdict().items()
            }
            return (AgentEvent(kind=kind, text=message.text.strip(), **position, **numbers),)
    return ()


def _read_console_event(message: str, position: dict[str, Any]) -> tuple[AgentRecord, ...]:
    """Return the ranks in a JSON event of `--event-log-handler console`: the start of a worker has them.

    Source: torch/distributed/elastic/agent/server/api.py `_construct_event`.
    """
    try:
        event = parse_json(message[message.index("{") :])
        metadata = event["metadata"]
        if event["source"] != "WORKER" or metadata["state"] != "START":
            return ()
        worker_metadata = parse_json(metadata["metadata"])
        return (
            RendezvousResult(
                source=ResultSource.EVENT,
                role=str(metadata["role"]),
                restart_count=int(metadata["agent_restarts"]),
                group_rank=int(metadata["group_rank"]),
                group_world_size=int(worker_metadata["group_world_size"]),
                global_ranks=(int(metadata["global_rank"]),),
                local_ranks=tuple(worker_metadata["local_rank"]),
                quote=message.strip(),
                **position,
            ),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return ()
