"""How a process fails: Python tracebacks in every form, and crashes of native code.

A crash is what the C++ runtime, the interpreter or the C library print when they end a process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from kfjob.joblog.diagnose.engine.incidents import Incident, Mark, Relation, has_warning_level, is_library
from kfjob.joblog.diagnose.rule import IncidentKind
from kfjob.joblog.lines.line_text import TRACEBACK_HEADING
from kfjob.joblog.lines.prefixes import split_prefix

_CRASH = re.compile(
    r"terminate called (?:after|without|recursively)|libc\+\+abi: |Fatal Python error: |Segmentation fault|Bus error"
    r"|Aborted|Floating point exception|Illegal instruction|Trace/breakpoint trap|Fatal glibc error: "
    r"|\*\*\* (?:Error in|Aborted at|SIG[A-Z]+ received|stack smashing detected|buffer overflow detected)"
    r"|(?:free|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): |double free or corruption|corrupted (?:size|double-linked)"
    r"|OMP: Error #\d|libgomp: (?!Invalid value)|\[[\w.-]{1,80}:\d{1,9}\] \*\*\* Process received signal"
)
_ASSERTION = re.compile(r"[^:]{1,200}: [^:\s]{1,300}:\d+: .{0,2000}\bAssertion [`'\"]")
_END_OF_MESSAGE = re.compile(r"Exception raised from |[^:]{1,200}: line \d+: |frame #\d+|C\+\+ CapturedTraceback")
CRASH_MARKERS = (
    "terminate called", "libc++abi", "Fatal Python error", "Segmentation fault", "Bus error", "Aborted", "free():", "malloc():",
    "double free", "corrupted ", "Floating point exception", "Illegal instruction", "munmap_chunk", "SIGABRT", "SIGSEGV",
    "breakpoint trap", "Fatal glibc", "stack smashing", "buffer overflow detected", "realloc():", "malloc_consolidate():",
    "OMP: Error", "libgomp: ", "Process received signal", "Assertion ", "*** SIG",
)  # fmt: skip
"""Literals of which every first line contains one."""
_DUMP_PART = re.compile(
    r"  (?:File|Binary file|<no Python frame>|<cannot get|\.\.\.)|Extension modules: |Python runtime state: "
    r"|(?:Current t|T)hread 0x|Stack \(most recent call first\)"
)
"""Beginnings of the lines that faulthandler prints below a fatal error."""


def starts_crash(text: str) -> bool:
    """Return whether the line begins the report of a crash."""
    if _CRASH.match(text) is not None:
        return True
    return "Assertion " in text and "block: [" not in text and _ASSERTION.match(text) is not None


def continues_dump(first: str, text: str) -> bool:
    """Return whether the line belongs to the stacks that faulthandler prints below the line `first`."""
    return first.startswith("Fatal Python error: ") and (not text.strip() or _DUMP_PART.match(text) is not None)


def continues_crash(text: str) -> bool:
    """Return whether the line belongs to the message of a crash, and not to the stack below it."""
    return bool(text.strip()) and not _END_OF_MESSAGE.match(text) and not starts_crash(text)


HEADING = TRACEBACK_HEADING
_WRAPS = "The above exception was the direct cause of the following exception:"
FOLLOWS = ("During handling of the above exception, another exception occurred:", _WRAPS)
MAX_LINES = 300
"""Length of a traceback; a longer one is dropped."""

MAX_STACK = 12
"""Lines of a traceback that rules search."""

_EXPLAINS = re.compile(r"-- Process \d+ terminated with the following error:|Original Traceback \(|\(RANK \d+\)")
"""Words before the traceback of a child, below the exception of its parent (torch.multiprocessing.spawn, `_utils.reraise`)."""
_THREAD = "Exception in thread "
_BACKGROUND = (_THREAD, "Task exception was never retrieved", "Exception in callback ")
"""Introductions of exceptions that do not end the process."""
_IGNORED = (
    *("Exception ignored in", "Error in atexit._run_exitfuncs", "Error in sys.excepthook"),
    *("--- Logging error ---", "Call stack:"),  # both parts of the report of Python's logging (Handler.handleError)
)
"""Introductions of exceptions that only Python itself has seen, most of them at the end of a process."""
_CLASS = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*)|:)?$")
_CLASS_NAME = re.compile(
    r"(?:Error|Exception|Exit|Interrupt|Failure|Failed|Timeout|Warning|NotFound|Closed|Expired|Group|Invalid|BadZipFile"
    r"|Fault|Refused|Denied|Exceeded|Unavailable|Mismatch)$"
)
_LAST_LINE = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Timeout|Failed|ArrowInvalid|BadZipFile)|Exception)(?:: |$)"
)
_DOTTED_LAST_LINE = re.compile(r"(?:[a-z_]\w*\.)+(?:[A-Z]\w*|gaierror|herror|error|timeout): ")
HYDRA_HEADING = "Error in call to target"
HYDRA_ERROR = re.compile(r"^([A-Z]\w*(?:Error|Exception))\(['\"](.*)['\"]\)\s*$")
"""An exception as Hydra prints it below `HYDRA_HEADING`, without a traceback."""
TRACEBACK_MARKERS = ("Timeout", "socket.timeout", "Interrupt", "queue.Empty", "queue.Full", "BrokenProcessPool", "Call stack:")
"""Literals of last lines of tracebacks, and of introductions, that name neither an error nor a failure."""
_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)(?:, in\b|$|\s)')
_SYNTAX_ERROR_PLACE = re.compile(r'\s*File "([^"]+)", line (\d+)\s*$')
_SYNTAX = ("SyntaxError", "IndentationError", "TabError")
_MAX_SYNTAX = 4
"""Lines above a syntax error: the caret, the source line and its file."""
_BOXED_FRAME = re.compile(r"\s*[│|] (\S+?):(\d+) in\b")
_NUMBERS = re.compile(r"\d+")
_GROUP = re.compile(r" {2,20}(?:\| ?|\+ (?=Exception Group)|\+-(?=[+-]))")


class Margin(Struct, frozen=True):
    """Text before each line of a traceback. Only its numbers change."""

    parts: tuple[str, ...]  # the text between the numbers

    def strip(self, text: str) -> str | None:
        """Return the rest of the line; None if it has another margin."""
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


def learn_margin(text: str) -> Margin | None:
    """Return the margin that the text before a heading is; None if it is blank."""
    return Margin(tuple(_NUMBERS.split(text))) if text.strip() else None


def strip_group(text: str) -> str:
    """Return the line without the tree that Python draws before the lines of an `ExceptionGroup`."""
    match = _GROUP.match(text)
    return text[match.end() :] if match else text


class Traceback(Struct):
    """A traceback that has not ended."""

    relation: Relation = Relation.NONE
    in_thread: bool = False
    ignored: bool = False
    in_warning: bool = False  # the heading is in a line that its program calls a warning
    margin: Margin | None = None  # what its program prints before each line
    boxed: bool = False  # drawn by rich
    remaining_lines: int = MAX_LINES
    in_frame: bool = True  # the last line was part of a frame
    location: str = ""
    frame: tuple[str, ...] = ()
    stack: tuple[str, ...] = ()  # its newest lines
    expects_code: bool = False  # the next line is the source line of a frame
    is_own: bool = False  # the frame is one of the program itself
    newest: tuple[Mark, str] | None = None  # its newest line, as printed

    def strip(self, text: str) -> str:
        """Return the line without its margin, or without the prefix of its logger and the tree of a group."""
        if self.margin and (stripped := self.margin.strip(text)) is not None:
            return stripped
        prefix, message = split_prefix(text)
        return strip_group(message if prefix.has_stamp else text)

    def add_line(self, text: str) -> bool:
        """Return whether the line is part of the frames; keep the innermost frame of the program itself."""
        self.remaining_lines -= 1
        self.stack = (*self.stack, text)[-MAX_STACK:]
        if text.lstrip()[:1] in {"│", "╭", "╰"}:
            return self._add_boxed(text)
        if match := _FRAME.match(text):
            self.in_frame = self.expects_code = True
            self.is_own = not is_library(match[1])
            if self.is_own:
                self.location, self.frame = f"{match[1]}:{match[2]}", (text.rstrip(),)
            return True
        is_code = self.expects_code and text[:1] not in {" ", "["} and find_class(text, after_frame=False) is None
        if not (text.startswith(("  ", "\t")) or not text.strip() or is_code):
            return False
        self.in_frame = True
        if self.expects_code and self.is_own and text.strip():
            self.frame = (*self.frame[:1], text.rstrip())
        self.expects_code = self.expects_code and not text.strip()
        return True

    def _add_boxed(self, text: str) -> bool:
        """Add a line of a box that rich has drawn."""
        self.boxed = self.in_frame = True
        if (match := _BOXED_FRAME.match(text)) and not is_library(match[1]):
            self.location = f"{match[1]}:{match[2]}"
        return True

    def end(self, text: str, *, printed: str, mark: Mark, stream: str) -> Incident | None:
        """Return the incident if the line ends the traceback."""
        match = find_class(text, after_frame=self.in_frame)
        self.in_frame = False
        if match is None:
            return None
        return Incident(
            kind=IncidentKind.EXCEPTION,
            mark=mark,
            stream=stream,
            lines=[text],
            printed=[printed],
            name=match[1],
            message=(match[2] or "").strip(),
            location=self.location,
            frame=self.frame,
            stack=self.stack,
            relation=self.relation,
            in_thread=self.in_thread,
            in_warning=self.in_warning,
            wrapped=self.boxed,
        )


def cut_traceback(traceback: Traceback, stream: str) -> Incident | None:
    """Return the incident of a traceback in which the log of its process ends; None if other lines follow its frames."""
    if traceback.newest is None or not (traceback.in_frame and traceback.stack) or traceback.ignored:
        return None
    mark, printed = traceback.newest
    return Incident(
        kind=IncidentKind.EXCEPTION,
        mark=mark,
        stream=stream,
        lines=[traceback.stack[-1].strip()],
        printed=[printed],
        location=traceback.location,
        frame=traceback.frame,
        stack=traceback.stack,
        is_cut=True,
    )


def find_class(text: str, *, after_frame: bool) -> re.Match[str] | None:
    """Match `Class: message`: a class with a usual name, or any dotted or capitalised one directly after a frame."""
    match = _CLASS.match(text.rstrip())
    if not match:
        return None
    name = match[1]
    is_usual = _CLASS_NAME.search(name) is not None and (name[:1].isupper() or "." in name)
    is_special = after_frame and (name[:1].isupper() or ("." in name and match[2] is not None))
    return match if is_usual or is_special else None


def match_last_line(text: str) -> re.Match[str] | None:
    """Match the last line of a traceback whose heading is lost."""
    return _CLASS.match(text.rstrip()) if _LAST_LINE.match(text) or _DOTTED_LAST_LINE.match(text) else None


def open_traceback(text: str, introduction: Introduction) -> Traceback:
    """Return the traceback that the heading in the line opens."""
    before, _, after = text.partition(HEADING)
    boxed = "─" in before or "─" in after
    before = before.removesuffix("Exception Group ").removesuffix("Original ").removesuffix("+ ")
    is_summary = before.strip() == "traceback :"  # of torchrun: the lines below have two spaces, which frames have too
    return Traceback(
        relation=Relation.EXPLAINS if _EXPLAINS.search(text) else introduction.relation,
        in_thread=introduction.in_thread,
        ignored=introduction.ignored,
        in_warning=has_warning_level(text),
        margin=Margin(("  ",)) if is_summary else None if boxed else learn_margin(before),
        boxed=boxed,
    )


def open_cut_traceback(text: str, introduction: Introduction) -> Traceback:
    """Return the traceback whose heading is lost, and which goes on in the line."""
    return Traceback(
        relation=introduction.relation,
        in_thread=introduction.in_thread,
        ignored=introduction.ignored,
        boxed=ends_box(text),
    )


def is_frame(text: str) -> bool:
    """Return whether the line is the first of a frame: the heading of its traceback is lost."""
    return ", in " in text and _FRAME.match(text) is not None


def find_syntax_error(name: str, before: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return the place that Python could not parse, and its lines, from the lines above a syntax error, the newest first.

    Python prints no heading for an error in the program's main file. Both are empty for another exception.
    """
    if not name.endswith(_SYNTAX):
        return "", ()
    code = ""
    for text in islice(before, _MAX_SYNTAX):
        if match := _SYNTAX_ERROR_PLACE.match(text):
            return f"{match[1]}:{match[2]}", (text.rstrip(), *([code] if code else []))
        code = text.rstrip() if text.strip(" ^~") else code
    return "", ()


def ends_box(text: str) -> bool:
    """Return whether the line is the lower edge of a box: the exception of a rich traceback is below it."""
    return text.lstrip().startswith("╰─")


class Introduction(Struct):
    """The words before a traceback."""

    relation: Relation = Relation.NONE
    in_thread: bool = False
    ignored: bool = False

    def read(self, text: str) -> bool:
        """Return whether the line introduces the next traceback."""
        if any(words in text for words in FOLLOWS):
            self.relation = Relation.WRAPS if _WRAPS in text else Relation.FOLLOWS
        elif _EXPLAINS.search(text):
            self.relation = Relation.EXPLAINS
        elif any(words in text for words in _BACKGROUND):
            self.in_thread = True
        elif any(words in text for words in _IGNORED):
            self.ignored = True
        else:
            return False
        return True
