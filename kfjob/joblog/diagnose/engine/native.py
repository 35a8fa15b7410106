"""The end of a process outside of Python: what the C++ runtime, the interpreter and the C library print about it."""

from __future__ import annotations

import re

from kfjob.base.patterns import Pattern
from kfjob.joblog.diagnose.engine.incidents import Dump, Incident, is_library

_START = re.compile(
    r"terminate called (?:after|without|recursively)|libc\+\+abi: |Fatal Python error: |Segmentation fault|Bus error"
    r"|Aborted|Floating point exception|Illegal instruction|Trace/breakpoint trap|Fatal glibc error: "
    r"|\*\*\* (?:Error in|Aborted at|SIG[A-Z]+ received|stack smashing detected|buffer overflow detected)"
    r"|(?:free|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): |double free or corruption|corrupted (?:size|double-linked)"
    r"|OMP: Error #\d|libgomp: (?!Invalid value)|\[[\w.-]{1,80}:\d{1,9}\] \*\*\* Process received signal"
)
_ASSERTION = re.compile(r"[^:]{1,200}: [^:\s]{1,300}:\d+: .{0,2000}\bAssertion [`'\"]")
_END_OF_MESSAGE = re.compile(
    r"Exception raised from |[^:]{1,200}: line \d+: |frame #\d+|C\+\+ CapturedTraceback|Current thread |Thread 0x|  File "
)
MARKERS = (
    "terminate called", "libc++abi", "Fatal Python error", "Segmentation fault", "Bus error", "Aborted", "free():", "malloc():",
    "double free", "corrupted ", "Floating point exception", "Illegal instruction", "munmap_chunk", "SIGABRT", "SIGSEGV",
    "breakpoint trap", "Fatal glibc", "stack smashing", "buffer overflow detected", "realloc():", "malloc_consolidate():",
    "OMP: Error", "libgomp: ", "Process received signal", "Assertion ", "*** SIG",
)  # fmt: skip
"""Literals of which every first line contains one."""

FATAL_ERROR = "Fatal Python error: "
MAX_FRAMES = 12
"""Frames to keep of a dump, from the innermost one."""
MAX_DUMP = 400
"""Lines of a dump; a longer one is cut."""
_CURRENT = re.compile(r"Current thread(?:'s)? ")
_OTHER = re.compile(r"(?:Thread 0x[0-9a-f]+ |Stack \(most recent call first\))")
_FRAME = re.compile(r'  File "([^"]+)", line (\d+) in (.*)')
_PART = re.compile(r"  (?:File|Binary file|<no Python frame>|<cannot get|\.\.\.)|Extension modules: |Python runtime state: ")
_PACKAGE = Pattern(r".*(?:(?:site|dist)-packages|/lib/python\d[\d.]*|[\\/]Lib)[\\/]([\w-]+)")


def name_call(dump: Dump) -> tuple[str, str]:
    """Return the innermost Python function of the thread that crashed, and its package; "" for the program itself."""
    match = _FRAME.match(dump.frames[0]) if dump.frames else None
    package = _PACKAGE.search(match[1]) if match else None
    return (match[3].strip() if match else "", package[1] if package else "")


def starts(text: str) -> bool:
    """Return whether the line begins the report of a crash."""
    if _START.match(text) is not None:
        return True
    return "Assertion " in text and "block: [" not in text and _ASSERTION.match(text) is not None


def continues(text: str) -> bool:
    """Return whether the line belongs to the message of a crash, and not to the stack below it."""
    return bool(text.strip()) and not _END_OF_MESSAGE.match(text) and not starts(text)


def is_dumped(incident: Incident) -> bool:
    """Return whether faulthandler reports the crash, so that stacks follow."""
    return incident.lines[0].startswith(FATAL_ERROR)


def add_to_dump(incident: Incident, text: str) -> bool:
    """Return whether the line belongs to the stacks below a fatal error; keep the frames of the thread that crashed."""
    dump = incident.dump = incident.dump or Dump()
    dump.lines += 1
    if dump.lines > MAX_DUMP:
        return False
    if _CURRENT.match(text):
        dump.in_current = True
        return True
    if _OTHER.match(text):
        dump.in_current = False
        return True
    if dump.in_current and len(dump.frames) < MAX_FRAMES and (match := _FRAME.match(text)):
        dump.frames = (*dump.frames, text.rstrip())
        incident.frame = incident.frame or (text.rstrip(),)
        if not incident.location and not is_library(match[1]):
            incident.location = f"{match[1]}:{match[2]}"
            incident.frame = tuple(dict.fromkeys((incident.frame[0], text.rstrip())))
        return True
    return not text.strip() or _PART.match(text) is not None
