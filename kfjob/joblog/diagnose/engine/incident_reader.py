"""Reader of incidents: it turns the lines of one container into incidents.

Every process has its own stream, named by the prefix of its lines. A stream holds at most one open traceback and one message,
so memory is bounded by `MAX_STREAMS`, `MAX_MESSAGE` and the length of a line. Every line is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from msgspec import Struct, field

from kfjob.joblog.diagnose.engine.incidents import (
    MAX_MESSAGE,
    MAX_QUOTATION_DISTANCE,
    Incident,
    Mark,
    Relation,
    is_boundary,
    is_quoted,
    is_warning,
)
from kfjob.joblog.diagnose.engine.tracebacks import (
    FOLLOWS,
    HEADING,
    HYDRA_ERROR,
    HYDRA_HEADING,
    Introduction,
    Traceback,
    continues_crash,
    continues_dump,
    cut_traceback,
    ends_box,
    find_syntax_error,
    is_frame,
    match_last_line,
    open_cut_traceback,
    open_traceback,
    starts_crash,
    strip_group,
)
from kfjob.joblog.diagnose.rule import IncidentKind
from kfjob.joblog.lines.line_text import TRACEBACK_HEADING
from kfjob.joblog.lines.prefixes import split_process

MAX_STREAMS = 64
"""Processes whose tracebacks and messages can mix."""
MAX_GAP = 8
"""Lines of other processes after which a message has ended."""
MAX_PARAGRAPHS = 5
"""Blank lines within the message of a library's exception."""

LinesBefore = Callable[[], Iterator[str]]
"""Returns the lines before the present one as printed, the newest first."""
MAX_CONTEXT = 2
"""Lines to quote from before an incident."""
MAX_CONTEXT_DISTANCE = 16
"""Lines before an incident in which those of its process are searched."""

_AGENT = ("torch/distributed/elastic", "torch.distributed.elastic", "torch/distributed/run.py", "torch/distributed/launcher")
"""Parts of each line of torchrun and its agent: where a process failed, it is the program's own line that explains."""
_STACK = ("  ", "\t", "│", "|", "╭", "╰", "^", 'File "')
"""First characters of source lines, frames and boxes."""


class _Stream(Struct):
    """What one process has begun to print."""

    traceback: Traceback | None = None
    message: Incident | None = None
    introduction: Introduction = field(default_factory=Introduction)
    ignores: bool = False  # the last traceback was ignored, and so are those that it is chained with
    previous: Incident | None = None  # the newest exception that has ended
    before: tuple[str, ...] = ()  # the lines before what is open, the newest first
    gap: int = 0  # lines of other processes since the newest line of the message
    lines: int = 0  # that the process has printed, as far as they were read; without a prefix those of the container
    heading: int = 0  # number of the line that opened the traceback

    @property
    def is_open(self) -> bool:
        """Whether the next line may belong to it."""
        return self.traceback is not None or self.message is not None


class IncidentReader:
    """Reader for the log of one container."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}

    @property
    def is_open(self) -> bool:
        """Whether something has not ended, so that every line is relevant."""
        return any(stream.is_open for stream in self._streams.values())

    def feed(self, text: str, mark: Mark, before: LinesBefore) -> Iterator[Incident]:
        """Read a line without colours and stamps; yield the incidents that it ends, and its own."""
        key, body = split_process(text)
        yield from self._end_idle_messages(key)
        stream = self._find_stream(key)
        stream.lines = stream.lines + 1 if key else mark.line
        if HEADING in body:
            yield from _end_message(stream)
            _open(stream, open_traceback(body, stream.introduction), before)
            return
        if stream.message is not None:
            if _continues(stream.message, body):
                _continue_message(stream, stream.message, body, text)
                return
            _read_announcement(stream.message, body)
            yield from _end_message(stream)
        if stream.traceback is None or not _continue(key, stream, stream.traceback, text, mark):
            yield from _start(key, stream, text, mark, before)

    def open_incidents(self) -> Iterator[Incident]:
        """Return the incidents as they would be if the log ended here; nothing ends by it."""
        for key, stream in self._streams.items():
            incident = stream.message or (cut_traceback(stream.traceback, key) if stream.traceback else None)
            if incident is not None and not is_quoted(stream.before, incident.lines):
                yield incident

    def flush(self) -> Iterator[Incident]:
        """End everything that is open, and yield its incidents."""
        yield from self.open_incidents()
        self._streams.clear()

    def _end_idle_messages(self, key: str) -> Iterator[Incident]:
        """End the messages of the other processes that have not printed for long."""
        for name, stream in self._streams.items():
            if stream.message is not None and name != key:
                stream.gap += 1
                if stream.gap >= MAX_GAP:
                    yield from _end_message(stream)

    def _find_stream(self, key: str) -> _Stream:
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                idle = (name for name, item in self._streams.items() if not item.is_open)
                del self._streams[next(idle, next(iter(self._streams)))]
            stream = self._streams[key] = _Stream()
        return stream


def _open(stream: _Stream, traceback: Traceback, before: LinesBefore) -> None:
    """Open a traceback; one that follows another keeps the lines before the first."""
    stream.traceback, stream.introduction, stream.heading = traceback, Introduction(), stream.lines
    if traceback.relation is Relation.NONE or not stream.before:
        stream.before = tuple(islice(before(), MAX_QUOTATION_DISTANCE))


def _continue(key: str, stream: _Stream, traceback: Traceback, text: str, mark: Mark) -> bool:
    """Return whether the line is part of the open traceback; its last line opens a message."""
    body = traceback.strip(split_process(text)[1])
    if is_part := traceback.add_line(body):
        traceback.newest = mark, text
    incident = None if is_part else traceback.end(body, printed=text, mark=mark, stream=key)
    if incident is not None or traceback.remaining_lines <= 0:
        stream.traceback = None
    if incident is None:
        return is_part
    stream.ignores = traceback.ignored
    if not traceback.ignored:
        _add_message(stream, incident)
    return True


def _start(key: str, stream: _Stream, text: str, mark: Mark, before: LinesBefore) -> Iterator[Incident]:
    """Begin what the line begins; yield an incident of a single line."""
    body = split_process(text)[1]
    if stream.introduction.read(body):
        stream.introduction.ignored |= stream.ignores and stream.introduction.relation is not Relation.NONE
        return
    if is_frame(body) or ends_box(body):
        _open(stream, open_cut_traceback(body, stream.introduction), before)
        _continue(key, stream, stream.traceback or Traceback(), text, mark)
        return
    if HYDRA_HEADING in next(before(), ""):
        body = HYDRA_ERROR.sub(r"\1: \2", body)
    incident = Incident(kind=IncidentKind.MESSAGE, mark=mark, stream=key, lines=[body], printed=[text])
    if match := match_last_line(strip_group(body)):
        incident.kind, incident.name, incident.message = IncidentKind.EXCEPTION, match[1], (match[2] or "").strip()
        incident.relation, stream.introduction = stream.introduction.relation, Introduction()
    elif starts_crash(body):
        incident.kind = IncidentKind.NATIVE
    else:
        incident.kind = IncidentKind.WARNING if is_warning(body) else IncidentKind.MESSAGE
        incident.context = _find_context(before(), process=key)
        yield incident
        return
    if stream.traceback is None:
        stream.before = tuple(islice(before(), MAX_QUOTATION_DISTANCE))
        if incident.kind is IncidentKind.EXCEPTION:
            above = (body for process, body in map(split_process, stream.before) if process == key)
            incident.location, incident.frame = find_syntax_error(incident.name, above)
    _add_message(stream, incident)


def _add_message(stream: _Stream, incident: Incident) -> None:
    """Open the message of an incident."""
    incident.context = _find_context(stream.before, process=incident.stream)
    incident.first_position = stream.heading or stream.lines
    incident.last_position, stream.heading = stream.lines, 0
    incident.link(stream.previous if incident.relation is not Relation.NONE else None)
    stream.message = incident


def _continue_message(stream: _Stream, message: Incident, body: str, text: str) -> None:
    """Add a line to the open message."""
    message.add_line(body, text)
    _read_announcement(message, body)
    message.last_position, stream.gap = stream.lines, 0


def _read_announcement(message: Incident, body: str) -> None:
    """Record whether a line below the message, which is not indented, says how the program goes on."""
    if body[:1] not in {" ", "\t"}:
        message.announcement.read(body)


def _end_message(stream: _Stream) -> Iterator[Incident]:
    """Yield the open message unless it is part of a quotation."""
    incident, stream.message, stream.gap = stream.message, None, 0
    if incident is None or is_quoted(stream.before, incident.lines):
        return
    if incident.kind is IncidentKind.EXCEPTION:
        stream.previous = incident
    yield incident


def _continues(incident: Incident, text: str) -> bool:
    """Return whether the line belongs to the message."""
    if incident.kind is IncidentKind.NATIVE and continues_dump(incident.lines[0], text):
        return True
    is_full = incident.kind is IncidentKind.MESSAGE and len(incident.lines) >= MAX_MESSAGE
    if is_full or (not text.strip() and not _may_have_paragraphs(incident)):
        return False
    if is_boundary(text) or is_frame(text):
        return False
    if incident.kind is IncidentKind.NATIVE:
        return continues_crash(text)
    if starts_crash(text) or ends_box(text) or Introduction().read(text):
        return False
    match = match_last_line(text)
    return match is None or (incident.lines[-1].rstrip().endswith(":") and match[1] != incident.name)


def _may_have_paragraphs(incident: Incident) -> bool:
    """Return whether a blank line may be part of the message: libraries and launchers write long ones."""
    is_library = incident.kind is IncidentKind.MESSAGE or (incident.kind is IncidentKind.EXCEPTION and "." in incident.name)
    return is_library and len(incident.lines) < MAX_MESSAGE and incident.lines.count("") < MAX_PARAGRAPHS


def _find_context(before: Iterable[str], *, process: str) -> tuple[str, ...]:
    """Return the nearest lines of the process in the order of the log; lines without a process if it has printed none.

    `before` are the lines before the incident as printed, the newest first; `process` is the prefix of its process.
    """
    own: list[str] = []
    unnamed: list[str] = []
    for text in islice(before, MAX_CONTEXT_DISTANCE):
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
