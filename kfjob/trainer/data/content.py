"""A fingerprint of the content of data files, from a bounded part of them."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

_BLOCK = 1 << 14
"""Bytes that are read at once."""
_BLOCKS = 64
"""Blocks that are read of all files together: the first, the last, and others at equal distances."""


def fingerprint_files(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of the files' sizes and of 1 MiB of their content; of all of it, if the files are smaller.

    Raises:
        OSError: a file cannot be read.
    """
    sizes = [path.stat().st_size for path in paths]
    ends = list(accumulate(sizes))
    total = ends[-1] if ends else 0
    count = min(_BLOCKS, -(-total // _BLOCK))
    digest = hashlib.sha256(repr(sizes).encode())
    for block in range(count):
        begin = block * _BLOCK if total <= _BLOCK * _BLOCKS else (total - _BLOCK) * block // (count - 1)
        digest.update(_read(paths, ends, begin, min(begin + _BLOCK, total)))
    return digest.hexdigest()


def _read(paths: Sequence[Path], ends: list[int], begin: int, end: int) -> bytes:
    """Return the bytes from `begin` to `end` of the concatenated files."""
    parts = []
    while begin < end:
        number = bisect_right(ends, begin)
        with paths[number].open("rb") as file:
            file.seek(begin - (ends[number - 1] if number else 0))
            part = file.read(min(end, ends[number]) - begin)
        if not part:  # the file has become shorter
            break
        parts.append(part)
        begin += len(part)
    return b"".join(parts)
