"""The world size that a program prints itself: banners of torch, accelerate, Lightning, DeepSpeed and NCCL."""

from __future__ import annotations

from msgspec import Struct

from kfjob.base.patterns import Pattern

LITERALS = ("orld_size", "orld size", "um_processes", "um processes", "MEMBER: ", "process group with ", "nranks ")
"""Literals of which every line with a world size contains one."""

_SIZE = Pattern(
    r"\b[Ww]orld[_ ]size['\"]?\s{0,2}[:=]\s{0,2}(?P<size>\d{1,6})\b|\b[Nn]um[_ ]processes\s{0,2}[:=]\s{0,2}(?P<size2>\d{1,6})\b"
    r"|MEMBER: (?P<member>\d{1,6})/(?P<size3>\d{1,6})\b|process group with (?P<size4>\d{1,6}) (?:ranks?|process)"
    r"|\brank (?P<rank>\d{1,6}) nranks (?P<size5>\d{1,6})\b"
)
_SETTINGS = ("Namespace(", "rguments", "onfig", "default")
"""Parts of lines that print settings: their world size may be a default that nothing uses."""


class WorldSize(Struct, frozen=True):
    """The largest world size that a container has printed."""

    size: int = 0  # 0: unknown
    has_rank0: bool = False  # a process of the container is rank 0 of that world
    evidence: str = ""


def read_world_size(known: WorldSize, text: str) -> WorldSize:
    """Return the largest world size so far; a smaller one is that of a subgroup."""
    if any(word in text for word in _SETTINGS) or not (match := _SIZE.search(text)):
        return known
    values = match.groupdict()
    size = next(int(value) for name, value in values.items() if name.startswith("size") and value)
    is_first = values["rank"] == "0" or values["member"] == "1"
    if size < known.size:
        return known
    return WorldSize(size, is_first or (size == known.size and known.has_rank0), known.evidence if size == known.size else text)
