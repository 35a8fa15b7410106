"""The end of a process outside of Python: what the C++ runtime, the interpreter and the C library print about it."""

from __future__ import annotations

import re

_START = re.compile(
    r"terminate called (?:after|without|recursively)|libc\+\+abi: |Fatal Python error: |Segmentation fault|Bus error"
    r"|Aborted|Floating point exception|Illegal instruction|\*\*\* (?:Error in|Aborted at|SIG[A-Z]+ received)"
    r"|(?:free|malloc|realloc|munmap_chunk)\(\): |double free or corruption|corrupted (?:size|double-linked)"
)
_END_OF_MESSAGE = re.compile(r"Exception raised from |frame #\d+|C\+\+ CapturedTraceback|Current thread |Thread 0x|  File ")
MARKERS = (
    "terminate called", "libc++abi", "Fatal Python error", "Segmentation fault", "Bus error", "Aborted", "free():", "malloc():",
    "double free", "corrupted ", "Floating point exception", "Illegal instruction", "munmap_chunk", "SIGABRT", "SIGSEGV",
)  # fmt: skip
"""Literals of which every first line contains one."""


def starts(text: str) -> bool:
    """Return whether the line begins the report of a crash."""
    return _START.match(text) is not None


def continues(text: str) -> bool:
    """Return whether the line belongs to the message of a crash, and not to the stack below it."""
    return bool(text.strip()) and not _END_OF_MESSAGE.match(text) and not starts(text)
