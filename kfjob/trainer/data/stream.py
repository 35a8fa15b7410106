"""The samples of one rank, and the position that a checkpoint stores.

A run has one endless sequence of samples, the same for every world size W: rank r reads the samples k with k mod W = r. So a
global batch of G samples is always [step x G, (step + 1) x G), no two ranks read the same sample, and two ranks can resume at
the position of four.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kfjob.base.errors import KfjobError
from kfjob.trainer.data.lanes import Cursor, Lanes
from kfjob.trainer.data.packing import Sample
from kfjob.trainer.data.permutation import mix, permute_many

Position = dict[str, Any]
"""JSON: `next` is the number of samples that all ranks have read, `lanes` the cursors of a rank's lanes by lane number."""
_BLOCK = 1024
"""The number of indices to permute at once."""


class Samples(Protocol):
    """Samples that can be read by number."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def __getitem__(self, index: int, /) -> Sample:
        """Return the sample with this number."""


class SampleStream(ABC):
    """The samples of one rank: k = rank, rank + world size, …"""

    samples_per_epoch: int | None = None
    """The number of samples; None if it is only known after reading them all."""

    def __init__(self, *, rank: int, world_size: int) -> None:
        """Begin with the first sample."""
        self._rank, self._world_size = rank, world_size
        self._round = 0

    def read_batch(self, size: int) -> npt.NDArray[np.int64]:
        """Return the next `size` samples of this rank, shaped (size, rows of a sample, sequence length)."""
        samples = [self._next() for _ in range(size)]
        return np.concatenate(samples).reshape(size, *samples[0].shape)  # less work for each sample than np.stack

    @property
    def samples_read(self) -> int:
        """The number of samples that all ranks have read."""
        return self._round * self._world_size

    def position(self) -> Position:
        """Return this rank's part of the position."""
        return {"next": self._round}

    def seek(self, position: Position) -> None:
        """Continue at `position`, which `merge_positions` has merged from all ranks."""
        self._round, rest = divmod(position["next"], self._world_size)
        if rest:
            raise KfjobError(f"a position after {position['next']} samples cannot be divided among {self._world_size} ranks")

    def _next(self) -> Sample:
        number = self._round * self._world_size + self._rank
        self._round += 1
        return self._read(number)

    @abstractmethod
    def _read(self, number: int) -> Sample: ...


class SequentialStream(SampleStream):
    """Reads samples in the order of their numbers, endlessly."""

    def __init__(self, samples: Samples, *, rank: int, world_size: int) -> None:
        """Begin with the first sample."""
        super().__init__(rank=rank, world_size=world_size)
        self._samples = samples

    def _read(self, number: int) -> Sample:
        return self._samples[number]


class ShuffledStream(SampleStream):
    """Reads numbered samples, every epoch in another order. Works with every world size."""

    def __init__(self, samples: Samples, *, seed: int, rank: int, world_size: int) -> None:
        """Begin with the first sample of the first epoch."""
        super().__init__(rank=rank, world_size=world_size)
        self._samples, self._seed = samples, seed
        self.samples_per_epoch = len(samples)
        self._first, self._order = 0, np.zeros(0, np.int64)

    def _read(self, number: int) -> Sample:
        index = (number - self._first) // self._world_size
        if not 0 <= index < len(self._order):
            self._first, index = number, 0
            self._order = self._shuffle(np.arange(_BLOCK) * self._world_size + number)
        return self._samples[int(self._order[index])]

    def _shuffle(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        size = len(self._samples)
        epochs, indices = np.divmod(numbers, size)
        order = np.empty_like(numbers)
        for epoch in np.unique(epochs):
            selected = epochs == epoch
            order[selected] = permute_many(indices[selected].astype(np.uint64), size, mix(int(epoch), self._seed))
        return order


class LaneStream(SampleStream):
    """Reads lanes in turn: sample k is the next one of lane k mod the number of lanes. A rank opens only its own lanes."""

    def __init__(self, lanes: Lanes, *, rank: int, world_size: int) -> None:
        """Begin with the first sample of every lane."""
        super().__init__(rank=rank, world_size=world_size)
        if lanes.count % world_size:
            hint = f"`lanes: {math.lcm(lanes.count, world_size)}` serves both; it must not change during a run"
            if lanes.source.lane_count(math.lcm(lanes.count, world_size)) % world_size:
                hint = "tokenise it first (kfjob-tokenize): a tokenised folder serves any number of ranks"
            raise KfjobError(f"{lanes.count} lanes cannot be divided among {world_size} ranks", hint=hint)
        self._count = lanes.count
        self._lanes = {lane: lanes.open(lane) for lane in range(rank, lanes.count, world_size)}

    def _read(self, number: int) -> Sample:
        return self._lanes[number % self._count].next_sample()

    def position(self) -> Position:
        """Return the count, and the cursor of each of this rank's lanes."""
        return super().position() | {"lanes": {str(number): lane.cursor.to_json() for number, lane in self._lanes.items()}}

    def seek(self, position: Position) -> None:
        """Continue at the cursors of this rank's lanes."""
        super().seek(position)
        for number, lane in self._lanes.items():
            lane.seek(Cursor.from_json(position["lanes"][str(number)]))


def merge_positions(parts: Iterable[Mapping[str, Any]]) -> Position:
    """Return the run's position from the parts of all ranks."""
    parts = list(parts)
    position: Position = {"next": sum(part["next"] for part in parts)}
    lanes = {lane: cursor for part in parts for lane, cursor in part.get("lanes", {}).items()}
    return position | ({"lanes": lanes} if lanes else {})
