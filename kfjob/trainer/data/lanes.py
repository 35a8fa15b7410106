"""One lane of a source: shuffles its records in windows and packs them into samples; it can resume at every sample.

A lane reads a window of records, shuffles it, and packs samples from it. All randomness is a function of the seed and the
position. So the cursor, a few numbers, is the whole state of a lane, and no buffer is stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Self

import numpy as np

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import KfjobError
from kfjob.base.units import MIB
from kfjob.trainer.data.documents import Document, Encoder
from kfjob.trainer.data.packing import Sample, best_fit, pack_documents, shift_tokens, split_document
from kfjob.trainer.data.permutation import mix, permute
from kfjob.trainer.data.records import Offset, Reader, Source, count_characters
from kfjob.trainspec.train_fields import Packing

MAX_WINDOW_CHARACTERS = 64 * MIB
"""Characters of the records that a lane shuffles at once; a window of long documents has fewer than `shuffle_window`."""


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The position of a lane's next sample."""

    epoch: int = 0
    window: int = 0
    """The number of the window in the epoch."""
    offset: Offset = None
    """The offset in the source at which the window begins."""
    item: int = 0
    """The number of the document or sample in the shuffled window."""
    token: int = 0

    def to_json(self) -> JsonObject:
        """Return the cursor as checkpoints store it."""
        return {"epoch": self.epoch, "window": self.window, "place": self.offset, "item": self.item, "token": self.token}

    @classmethod
    def from_json(cls, stored: JsonMapping) -> Self:
        """Return the cursor that `to_json` stored."""
        return cls(
            epoch=stored["epoch"], window=stored["window"], offset=stored["place"], item=stored["item"], token=stored["token"]
        )


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """The settings that all lanes of a run share."""

    source: Source
    encoder: Encoder
    count: int
    length: int
    """Tokens in a sample."""
    window: int
    """Records to shuffle at once."""
    seed: int
    packing: Packing
    padding: int
    """The token that fills incomplete samples."""

    def open(self, number: int) -> Lane:
        """Open the lane with this number at its beginning."""
        return (StreamLane if self.packing == "stream" else PackedLane)(self, number)


class Lane(ABC):
    """An endless sequence of samples, epoch after epoch."""

    def __init__(self, lanes: Lanes, number: int) -> None:
        """Begin with the first sample of the lane."""
        self._lanes, self._number = lanes, number
        self._key = mix(number, lanes.seed)
        self.seek(Cursor())

    @property
    @abstractmethod
    def cursor(self) -> Cursor:
        """The position of the next sample."""

    @abstractmethod
    def seek(self, cursor: Cursor) -> None:
        """Continue at `cursor`."""

    @abstractmethod
    def next_sample(self) -> Sample:
        """Return the next sample."""

    def _windows(self, cursor: Cursor) -> Iterator[tuple[Cursor, list[Any]]]:
        """Yield (cursor of its beginning, shuffled records) of each window, endlessly, from the window of `cursor` on."""
        lanes = self._lanes
        cursor, has_records = replace(cursor, item=0, token=0), cursor.offset is not None
        while True:
            reader = lanes.source.read(self._number, lanes.count, cursor.offset)
            while records := _read_window(reader, lanes.window):
                has_records = True
                key = mix(cursor.window, mix(cursor.epoch, self._key))
                yield cursor, [records[permute(index, len(records), key)] for index in range(len(records))]
                cursor = replace(cursor, window=cursor.window + 1, offset=reader.offset)
            if not has_records:
                raise KfjobError(
                    f"{lanes.source.name} is too small for the number of lanes",
                    cause="no document begins in the share of one lane",
                    hint="use more documents, shorter ones, or a smaller `lanes` (a multiple of the number of ranks)",
                )
            cursor = Cursor(epoch=cursor.epoch + 1)


def _read_window(reader: Reader, count: int) -> list[Any]:
    """Return the next records: `count`, or fewer if they are long or the last ones."""
    records, characters = [], 0
    for record in islice(reader, count):
        records.append(record)
        characters += count_characters(record)
        if characters > MAX_WINDOW_CHARACTERS:
            break
    return records


class StreamLane(Lane):
    """Concatenates documents without a gap; each sample begins with the last token of the sample before it."""

    def seek(self, cursor: Cursor) -> None:
        """Continue at `cursor`."""
        self._skip = cursor.token
        self._documents: deque[tuple[Cursor, Document]] = deque()
        self._buffered = -cursor.token
        self._source = self._read_documents(cursor)

    @property
    def cursor(self) -> Cursor:
        """The position of the next sample."""
        self._fill(1)
        return replace(self._documents[0][0], token=self._skip)

    def next_sample(self) -> Sample:
        """Return the next sample."""
        length = self._lanes.length
        self._fill(length + 1)
        tokens = np.concatenate([document.tokens for _, document in self._documents])[self._skip : self._skip + length + 1]
        self._skip += length
        self._buffered -= length
        while self._documents and self._skip >= len(self._documents[0][1].tokens):
            self._skip -= len(self._documents.popleft()[1].tokens)
        return shift_tokens(tokens)

    def _fill(self, tokens: int) -> None:
        """Read documents until at least `tokens` tokens are buffered that belong to no sample yet."""
        while self._buffered < tokens:
            self._documents.append(next(self._source))
            self._buffered += len(self._documents[-1][1].tokens)

    def _read_documents(self, cursor: Cursor) -> Iterator[tuple[Cursor, Document]]:
        first = cursor.item
        for window, records in self._windows(cursor):
            for item in range(first, len(records)):
                yield replace(window, item=item), self._lanes.encoder.encode(records[item])
            first = 0


class PackedLane(Lane):
    """Packs whole documents: as many as fit into a sample, or one per sample."""

    def seek(self, cursor: Cursor) -> None:
        """Continue at `cursor`."""
        self._source = self._read_samples(cursor)
        self._next: tuple[Cursor, Sample] | None = None

    @property
    def cursor(self) -> Cursor:
        """The position of the next sample."""
        self._next = self._next or next(self._source)
        return self._next[0]

    def next_sample(self) -> Sample:
        """Return the next sample."""
        _, sample = self._next or next(self._source)
        self._next = None
        return sample

    def _read_samples(self, cursor: Cursor) -> Iterator[tuple[Cursor, Sample]]:
        first, epoch, has_samples = cursor.item, cursor.epoch, cursor != Cursor()
        for window, records in self._windows(cursor):
            if window.epoch > epoch:
                if not has_samples:
                    raise KfjobError(
                        f"no tokens to train on in {self._lanes.source.name}",
                        cause=f"no answer begins in the first {self._lanes.length} tokens of a conversation",
                        location="data",
                    )
                epoch, has_samples = window.epoch, False
            samples = self._pack(records, key=mix(window.window, mix(window.epoch, self._key)))
            for item in range(first, len(samples)):
                yield replace(window, item=item), samples[item]()
            first, has_samples = 0, has_samples or bool(samples)

    def _pack(self, records: list[Any], *, key: int) -> list[Callable[[], Sample]]:
        """Return a function for each sample of the window, in shuffled order."""
        lanes = self._lanes
        encoder = lanes.encoder
        parts = [
            part
            for record in records
            for part in split_document(encoder.encode(record), lanes.length, truncate=not encoder.splits_documents)
        ]
        if lanes.packing == "pad":
            bins = [[number] for number in range(len(parts))]
        else:
            bins = best_fit([len(part.tokens) - 1 for part in parts], lanes.length)
        order = [bins[permute(index, len(bins), key)] for index in range(len(bins))]
        return [partial(self._pack_sample, [parts[number] for number in numbers]) for numbers in order]

    def _pack_sample(self, parts: list[Document]) -> Sample:
        lanes = self._lanes
        return pack_documents(parts, lanes.length, padding=lanes.padding, positions=lanes.packing == "documents")
