"""A tokenised folder: `tokens.json` and a few files for each split, read through memory maps. `kfjob-tokenize` makes it.

tokens.json            {"dtype": "uint16", "vocab_size": 2048, "end_of_text": 0, "tokens": {"train": 1048576, …},
                        "documents": {"train": 4096, …}, "answers": false, "tokenizer": "<SHA-256>", …}
train.bin              the tokens, little-endian, one document after the other
train.documents.bin    uint64: where each document ends
train.answers.bin      one byte for each token: whether it is learnt; of conversations only
tokenizer/             what they were made with
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kfjob.errors import KfjobError
from kfjob.spec.train import Packing
from kfjob.trainer.data.documents import Document
from kfjob.trainer.data.packing import Sample, best_fit, from_stream, joined

HEADER = "tokens.json"


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Samples of `length` + 1 tokens by number, cut without regard to documents.

    Each begins with the last token of the one before it.
    """

    tokens: npt.NDArray[np.unsignedinteger]
    length: int

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.length)

    def __getitem__(self, index: int) -> Sample:
        begin = index * self.length
        return from_stream(self.tokens[begin : begin + self.length + 1])


class Bins:
    """Samples of whole documents by number: packed once, by their lengths."""

    def __init__(self, split: Split, length: int, *, packing: Packing, padding: int) -> None:
        """Decide which documents go together."""
        self._split, self._length, self._padding = split, length, padding
        self._positions = packing == "documents"
        self._begins, self._sizes = split.parts(length)
        alone = packing == "pad"
        bins = [[n] for n in range(len(self._sizes))] if alone else best_fit(self._sizes.tolist(), length)
        self._edges = np.cumsum([0, *map(len, bins)])
        self._parts = np.array([number for numbers in bins for number in numbers], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._edges) - 1

    def __getitem__(self, index: int) -> Sample:
        numbers = self._parts[self._edges[index] : self._edges[index + 1]]
        parts = [self._split.document(int(self._begins[n]), int(self._sizes[n]) + 1) for n in numbers]
        return joined(parts, self._length, padding=self._padding, positions=self._positions)


@dataclass(frozen=True, kw_only=True)
class Split:
    """The files of one split."""

    tokens: npt.NDArray[np.unsignedinteger]
    ends: npt.NDArray[np.unsignedinteger]
    answers: npt.NDArray[np.bool_] | None

    def document(self, begin: int, size: int) -> Document:
        """So many tokens from one on."""
        learnt = None if self.answers is None else np.asarray(self.answers[begin : begin + size])
        return Document(self.tokens[begin : begin + size].astype(np.int64), learnt)

    def parts(self, length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """First token and number of targets of each part of a document, as `packing.pieces` cuts them."""
        ends = self.ends.astype(np.int64)
        begins = np.concatenate([[0], ends[:-1]])
        targets = ends - begins - 1
        if self.answers is None:
            counts = -(-targets // length)
            number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            return np.repeat(begins, counts) + number * length, np.minimum(np.repeat(targets, counts) - number * length, length)
        sizes = np.minimum(targets, length)
        learnt = np.concatenate([[0], np.cumsum(self.answers, dtype=np.int64)])
        kept = learnt[begins + sizes + 1] > learnt[begins + 1]
        return begins[kept], sizes[kept]


def header(folder: Path) -> dict[str, Any]:
    """What tokens.json says.

    Raises:
        KfjobError: it cannot be read.
    """
    try:
        found = dict(json.loads((folder / HEADER).read_text()))
        np.dtype(found["dtype"]), int(found["vocab_size"]), int(found["end_of_text"])
        dict(found["tokens"]), dict(found["documents"]), bool(found["answers"]), str(found["tokenizer"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KfjobError(f"cannot read `{folder / HEADER}`", cause=str(error), hint="kfjob-tokenize makes it") from error
    return found


def open_split(folder: Path, split: str) -> Split:
    """The files of a split.

    Raises:
        KfjobError: there is none of this name, or a file is not what tokens.json promises.
    """
    about = header(folder)
    if split not in about["tokens"]:
        raise KfjobError(f"no split `{split}` in `{folder}`", location="data", hint=f"there are {', '.join(about['tokens'])}")
    tokens = _mapped(folder / f"{split}.bin", np.dtype(about["dtype"]).newbyteorder("<"), about["tokens"][split], "tokens")
    ends = _mapped(folder / f"{split}.documents.bin", np.dtype("<u8"), about["documents"][split], "documents")
    answers = None
    if about["answers"]:
        answers = _mapped(folder / f"{split}.answers.bin", np.dtype(np.bool_), about["tokens"][split], "tokens")
    return Split(tokens=tokens, ends=ends, answers=answers)


def _mapped(path: Path, dtype: np.dtype[Any], count: int, what: str) -> npt.NDArray[Any]:
    size = path.stat().st_size if path.exists() else 0
    if size != count * dtype.itemsize:
        raise KfjobError(f"`{path}` has {size} bytes, {HEADER} promises {count} {what} of {dtype.itemsize} bytes")
    # as a plain array: a slice of a memmap is a memmap, which costs several times as much to make
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if count else np.zeros(0, dtype)


def open_samples(folder: Path, split: str, length: int, packing: Packing) -> Blocks | Bins:
    """The samples of a split.

    Raises:
        KfjobError: a file is not what tokens.json promises, or the split has not one sample.
    """
    files = open_split(folder, split)
    if packing == "stream":
        if files.answers is not None:
            raise KfjobError(
                f"`{folder}` has conversations, which packing `stream` would cut apart",
                location="packing",
                hint="use documents or pad",
            )
        if len(files.tokens) <= length:
            held = f"`{folder / split}.bin` has {len(files.tokens)} tokens"
            raise KfjobError(f"{held}, less than one sample of {length + 1}")
        return Blocks(tokens=files.tokens, length=length)
    bins = Bins(files, length, packing=packing, padding=int(header(folder)["end_of_text"]))
    if not len(bins):
        raise KfjobError(f"there is nothing to learn in `{folder / split}.bin`", location="data")
    return bins
