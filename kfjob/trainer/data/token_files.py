"""A tokenised folder: `tokens.json` and a few memory-mapped files for each split. `kfjob-tokenize` writes it.

tokens.json            {"dtype": "uint16", "vocab_size": 2048, "end_of_text": 0, "tokens": {"train": 1048576, …},
                        "documents": {"train": 4096, …}, "answers": false, "tokenizer": "<SHA-256>", …}
train.bin              the tokens, little-endian, one document after the other
train.documents.bin    uint64: the end of each document
train.answers.bin      the loss mask, one byte per token; only for conversations
tokenizer/             the tokenizer that encoded the text
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from kfjob.base.errors import KfjobError
from kfjob.base.parsing import parse_json_object, read_document
from kfjob.base.units import GIB
from kfjob.trainer.data.documents import Document
from kfjob.trainer.data.packing import Sample, best_fit, pack_documents, shift_tokens
from kfjob.trainspec.train_fields import Packing
from kfjob.trainspec.train_rules import TOKENS_HEADER

HEADER = TOKENS_HEADER
FILE_SUFFIXES = ("bin", "documents.bin", "answers.bin")
"""The ends of the names of a split's files; only conversations have the last one."""
MAX_PACKED_PARTS = 200_000_000
"""Parts of documents that are packed into samples; each rank takes 100 bytes of memory for each of them."""
_PART_SIZE = 100
_BLOCK = 1 << 20
"""Numbers to compare at once."""


@dataclass(frozen=True, kw_only=True)
class StreamSamples:
    """Samples of `length` + 1 tokens by number, cut without regard to documents.

    Each sample begins with the last token of the sample before it.
    """

    tokens: npt.NDArray[np.unsignedinteger]
    length: int

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.length)

    def __getitem__(self, index: int) -> Sample:
        begin = index * self.length
        return shift_tokens(self.tokens[begin : begin + self.length + 1])


class PackedSamples:
    """Samples of whole documents by number; the packing is computed once, from the lengths of the documents."""

    def __init__(self, split: Split, length: int, *, packing: Packing, padding: int) -> None:
        """Assign the documents to samples."""
        self._split, self._length, self._padding = split, length, padding
        self._positions = packing == "documents"
        self._begins, self._sizes = split.parts(length)
        one_per_sample = packing == "pad"
        bins = [[n] for n in range(len(self._sizes))] if one_per_sample else best_fit(self._sizes.tolist(), length)
        self._edges = np.cumsum([0, *map(len, bins)])
        self._parts = np.array([number for numbers in bins for number in numbers], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._edges) - 1

    def __getitem__(self, index: int) -> Sample:
        numbers = self._parts[self._edges[index] : self._edges[index + 1]]
        parts = [self._split.document(int(self._begins[n]), int(self._sizes[n]) + 1) for n in numbers]
        return pack_documents(parts, self._length, padding=self._padding, positions=self._positions)


@dataclass(frozen=True, kw_only=True)
class Split:
    """The files of one split."""

    tokens: npt.NDArray[np.unsignedinteger]
    ends: npt.NDArray[np.unsignedinteger]
    loss_mask: npt.NDArray[np.bool_] | None

    def document(self, begin: int, size: int) -> Document:
        """Return `size` tokens from `begin` on."""
        loss_mask = None if self.loss_mask is None else np.asarray(self.loss_mask[begin : begin + size])
        return Document(self.tokens[begin : begin + size].astype(np.int64), loss_mask)

    def parts(self, length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the first token and the number of targets of each part that `packing.split_document` returns."""
        ends = self.ends.astype(np.int64)
        begins = np.concatenate([[0], ends[:-1]])
        targets = ends - begins - 1
        if self.loss_mask is None:
            counts = -(-targets // length)
            number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            return np.repeat(begins, counts) + number * length, np.minimum(np.repeat(targets, counts) - number * length, length)
        sizes = np.minimum(targets, length)
        masked = np.concatenate([[0], np.cumsum(self.loss_mask, dtype=np.int64)])
        selected = masked[begins + sizes + 1] > masked[begins + 1]
        return begins[selected], sizes[selected]


class TokensHeader(BaseModel):
    """The content of tokens.json; anybody may have written it."""

    model_config = ConfigDict(frozen=True, strict=True)

    dtype: Literal["uint16", "uint32"]
    """The only two: numpy follows the pointers in an array of objects, and the file would choose them."""
    vocab_size: int = Field(gt=0, le=2**31)
    end_of_text: int = Field(ge=0)
    tokens: dict[str, NonNegativeInt]
    documents: dict[str, NonNegativeInt]
    answers: bool
    tokenizer: str

    @model_validator(mode="after")
    def check_consistency(self) -> TokensHeader:
        """Check that each split has its documents, and that the end of a text is a token."""
        if self.tokens.keys() != self.documents.keys():
            raise ValueError("`tokens` and `documents` name different splits")
        if self.end_of_text >= self.vocab_size:
            raise ValueError("`end_of_text` is not below `vocab_size`")
        return self


def read_header(folder: Path) -> TokensHeader:
    """Return the content of tokens.json.

    Raises:
        KfjobError: the file is missing or invalid.
    """
    try:
        return TokensHeader.model_validate(parse_json_object(read_document(folder / HEADER)))
    except ValidationError as error:
        problem = error.errors()[0]
        cause = ": ".join((*map(str, problem["loc"]), problem["msg"]))
    except (OSError, ValueError) as error:
        cause = str(error)
    raise KfjobError(f"cannot read `{folder / HEADER}`", cause=cause, hint="write the folder with kfjob-tokenize")


def open_split(folder: Path, split: str) -> Split:
    """Open the files of a split.

    Raises:
        KfjobError: the folder has no such split, or its files do not fit together.
    """
    header = read_header(folder)
    if split not in header.tokens:
        raise KfjobError(f"no split `{split}` in `{folder}`", location="data", hint=f"it has {', '.join(header.tokens)}")
    tokens = _map_file(folder / f"{split}.bin", np.dtype(header.dtype).newbyteorder("<"), header.tokens[split], "tokens")
    ends = _map_file(folder / f"{split}.documents.bin", np.dtype("<u8"), header.documents[split], "documents")
    if int(ends[-1] if len(ends) else 0) != len(tokens) or len(ends) > len(tokens) or not _is_ascending(ends):
        raise KfjobError(
            f"`{folder / split}.documents.bin` does not divide the {len(tokens)} tokens of the split into documents"
        )
    loss_mask = None
    if header.answers:
        loss_mask = _map_file(folder / f"{split}.answers.bin", np.dtype(np.bool_), header.tokens[split], "tokens")
    return Split(tokens=tokens, ends=ends, loss_mask=loss_mask)


def _is_ascending(ends: npt.NDArray[np.unsignedinteger]) -> bool:
    """Return whether no number is smaller than the one before it, in little memory."""
    blocks = (ends[begin : begin + _BLOCK + 1] for begin in range(0, len(ends), _BLOCK))
    return not any((block[1:] < block[:-1]).any() for block in blocks)


def _map_file(path: Path, dtype: np.dtype[Any], count: int, unit: str) -> npt.NDArray[Any]:
    size = path.stat().st_size if path.exists() else 0
    if size != count * dtype.itemsize:
        raise KfjobError(f"`{path}` has {size} bytes, {HEADER} promises {count} {unit} of {dtype.itemsize} bytes")
    # as a plain array: a slice of a memmap is a memmap, which is several times slower to create
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if count else np.zeros(0, dtype)


def open_samples(folder: Path, split: str, length: int, packing: Packing) -> StreamSamples | PackedSamples:
    """Open the samples of a split.

    Raises:
        KfjobError: a file does not have the size in tokens.json, or the split is shorter than one sample.
    """
    files = open_split(folder, split)
    if packing == "stream":
        if files.loss_mask is not None:
            raise KfjobError(
                f"`{folder}` has conversations, which packing `stream` would split",
                location="packing",
                hint="use `documents` or `pad`",
            )
        if len(files.tokens) <= length:
            size = f"`{folder / split}.bin` has {len(files.tokens)} tokens"
            raise KfjobError(f"{size}, less than one sample of {length + 1}")
        return StreamSamples(tokens=files.tokens, length=length)
    parts = len(files.ends) + len(files.tokens) // length
    if parts > MAX_PACKED_PARTS:
        raise KfjobError(
            f"`{folder / split}.bin` has {parts:,} parts of documents to pack, the limit is {MAX_PACKED_PARTS:,}",
            location="packing",
            cause=f"each rank would need {parts * _PART_SIZE // GIB:,} GiB of memory for their order",
            hint="use `packing: stream`" if files.loss_mask is None else "tokenise the conversations in several folders",
        )
    samples = PackedSamples(files, length, packing=packing, padding=read_header(folder).end_of_text)
    if not len(samples):
        raise KfjobError(f"no tokens to train on in `{folder / split}.bin`", location="data")
    return samples
