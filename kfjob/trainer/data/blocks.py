"""A tokenised folder: `tokens.json` and one file of token numbers for each split, read through memory maps.

tokens.json       {"dtype": "uint16", "vocab_size": 2048, "end_of_text": 0, "tokens": {"train": 1048576, "validation": 65536}}
train.bin         the tokens, little-endian, documents one after the other with an end-of-text token after each
validation.bin
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kfjob.errors import KfjobError

HEADER = "tokens.json"


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Samples of `length` + 1 tokens by number; each begins with the last token of the one before it."""

    tokens: npt.NDArray[np.unsignedinteger]
    length: int

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.length)

    def __getitem__(self, index: int) -> npt.NDArray[np.int64]:
        begin = index * self.length
        return self.tokens[begin : begin + self.length + 1].astype(np.int64)


def header(folder: Path) -> dict[str, object]:
    """What tokens.json says.

    Raises:
        KfjobError: it cannot be read.
    """
    try:
        found = json.loads((folder / HEADER).read_text())
        np.dtype(found["dtype"]), int(found["vocab_size"]), dict(found["tokens"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KfjobError(f"cannot read `{folder / HEADER}`", cause=str(error)) from error
    return dict(found)


def open_blocks(folder: Path, split: str, length: int) -> Blocks:
    """The samples of a split.

    Raises:
        KfjobError: the file is not what tokens.json promises, or shorter than one sample.
    """
    about = header(folder)
    dtype, promised = np.dtype(str(about["dtype"])).newbyteorder("<"), dict(about["tokens"]).get(split, 0)  # type: ignore[call-overload]
    path = folder / f"{split}.bin"
    size = path.stat().st_size if path.exists() else 0
    if size != promised * dtype.itemsize:
        raise KfjobError(f"`{path}` has {size} bytes, {HEADER} promises {promised} tokens of {dtype.itemsize} bytes")
    if promised <= length:
        raise KfjobError(f"`{path}` has {promised} tokens, less than one sample of {length + 1}")
    return Blocks(tokens=np.memmap(path, dtype=dtype, mode="r"), length=length)
