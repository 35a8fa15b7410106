"""One lane of a source: its documents in shuffled windows, made into samples, resumable at every sample.

A lane reads a window of records, shuffles it, and makes samples of it. All its randomness is a function of the seed and of
where it is, so that a few numbers, the cursor, are its whole state: nothing buffered is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from kfjob.errors import KfjobError
from kfjob.spec.train import Packing
from kfjob.trainer.data.documents import Document, Encoder
from kfjob.trainer.data.packing import Sample, best_fit, from_stream, joined, pieces
from kfjob.trainer.data.permutation import mixed, permuted
from kfjob.trainer.data.source import Source, Target


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Where a lane's next sample begins."""

    epoch: int = 0
    window: int = 0
    """Its number in the epoch."""
    place: Target = None
    """Where the window begins, in the source's terms."""
    item: int = 0
    """Number of the document or sample in the shuffled window."""
    token: int = 0


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """What all lanes of a run have in common."""

    source: Source
    encoder: Encoder
    count: int
    length: int
    window: int
    seed: int
    packing: Packing
    padding: int

    def open(self, number: int) -> Lane:
        """The lane of this number, at its beginning."""
        return (StreamLane if self.packing == "stream" else PackedLane)(self, number)


class Lane(ABC):
    """An endless sequence of samples, epoch after epoch."""

    def __init__(self, lanes: Lanes, number: int) -> None:
        """Stand at the lane's beginning."""
        self._lanes, self._number = lanes, number
        self._key = mixed(number, lanes.seed)
        self.move(Cursor())

    @property
    @abstractmethod
    def cursor(self) -> Cursor:
        """Where the next sample begins."""

    @abstractmethod
    def move(self, cursor: Cursor) -> None:
        """Go on at `cursor`."""

    @abstractmethod
    def sample(self) -> Sample:
        """The next sample."""

    def _windows(self, at: Cursor) -> Iterator[tuple[Cursor, list[Any]]]:
        """(where it begins, its records, shuffled) of each window, for ever, from the window of `at` on."""
        lanes = self._lanes
        at, found = replace(at, item=0, token=0), at.place is not None
        while True:
            reader = lanes.source.read(self._number, lanes.count, at.place)
            while items := list(islice(reader, lanes.window)):
                found = True
                key = mixed(at.window, mixed(at.epoch, self._key))
                yield at, [items[permuted(place, len(items), key)] for place in range(len(items))]
                at = replace(at, window=at.window + 1, place=reader.place)
            if not found:
                raise KfjobError(
                    f"{lanes.source.name} is too small for the number of lanes",
                    cause="no document begins in the share of one lane",
                    hint="use a smaller `lanes` (a multiple of the number of ranks), or shorter documents",
                )
            at = Cursor(epoch=at.epoch + 1)


class StreamLane(Lane):
    """Documents without a gap; each sample begins with the last token of the one before it."""

    def move(self, cursor: Cursor) -> None:
        """Go on at `cursor`."""
        self._skip = cursor.token
        self._documents: deque[tuple[Cursor, Document]] = deque()
        self._waiting = -cursor.token
        self._source = self._shuffled(cursor)

    @property
    def cursor(self) -> Cursor:
        """Where the next sample begins."""
        self._fill(1)
        return replace(self._documents[0][0], token=self._skip)

    def sample(self) -> Sample:
        """The next sample."""
        length = self._lanes.length
        self._fill(length + 1)
        tokens = np.concatenate([document.tokens for _, document in self._documents])[self._skip : self._skip + length + 1]
        self._skip += length
        self._waiting -= length
        while self._documents and self._skip >= len(self._documents[0][1].tokens):
            self._skip -= len(self._documents.popleft()[1].tokens)
        return from_stream(tokens)

    def _fill(self, tokens: int) -> None:
        """Have so many tokens that are not in a sample yet."""
        while self._waiting < tokens:
            self._documents.append(next(self._source))
            self._waiting += len(self._documents[-1][1].tokens)

    def _shuffled(self, cursor: Cursor) -> Iterator[tuple[Cursor, Document]]:
        first = cursor.item
        for at, items in self._windows(cursor):
            for item in range(first, len(items)):
                yield replace(at, item=item), self._lanes.encoder.encode(items[item])
            first = 0


class PackedLane(Lane):
    """Whole documents, as many in a sample as fit, or one in each."""

    def move(self, cursor: Cursor) -> None:
        """Go on at `cursor`."""
        self._source = self._packed(cursor)
        self._next: tuple[Cursor, Sample] | None = None

    @property
    def cursor(self) -> Cursor:
        """Where the next sample begins."""
        self._next = self._next or next(self._source)
        return self._next[0]

    def sample(self) -> Sample:
        """The next sample."""
        _, sample = self._next or next(self._source)
        self._next = None
        return sample

    def _packed(self, cursor: Cursor) -> Iterator[tuple[Cursor, Sample]]:
        first, epoch, found = cursor.item, cursor.epoch, cursor != Cursor()
        for at, items in self._windows(cursor):
            if at.epoch > epoch:
                if not found:
                    raise KfjobError(
                        f"there is nothing to learn in {self._lanes.source.name}",
                        cause=f"no answer begins within {self._lanes.length} tokens",
                        location="data",
                    )
                epoch, found = at.epoch, False
            samples = self._samples(items, key=mixed(at.window, mixed(at.epoch, self._key)))
            for item in range(first, len(samples)):
                yield replace(at, item=item), samples[item]()
            first, found = 0, found or bool(samples)

    def _samples(self, items: list[Any], *, key: int) -> list[Callable[[], Sample]]:
        """Functions that make the window's samples, in the order in which they come."""
        lanes = self._lanes
        parts = [part for item in items for part in pieces(lanes.encoder.encode(item), lanes.length, cut=lanes.encoder.cut)]
        if lanes.packing == "pad":
            bins = [[number] for number in range(len(parts))]
        else:
            bins = best_fit([len(part.tokens) - 1 for part in parts], lanes.length)
        order = [bins[permuted(place, len(bins), key)] for place in range(len(bins))]
        return [partial(self._joined, [parts[number] for number in numbers]) for numbers in order]

    def _joined(self, parts: list[Document]) -> Sample:
        lanes = self._lanes
        return joined(parts, lanes.length, padding=lanes.padding, positions=lanes.packing == "documents")
