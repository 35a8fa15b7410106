"""The samples of one rank, and the position that a checkpoint keeps.

The run has one endless sequence of samples, the same for every number of ranks: sample k goes to rank k modulo the world size.
So a global batch of G samples is always [step x G, (step + 1) x G), no two ranks see the same sample, and a position that was
kept by four ranks can be taken up by two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kfjob.errors import KfjobError
from kfjob.trainer.data.lanes import Cursor, Lanes
from kfjob.trainer.data.packing import Sample
from kfjob.trainer.data.permutation import all_permuted, mixed

Position = dict[str, Any]
"""JSON: `next` is the number of samples given to all ranks, `lanes` the cursors of a rank's lanes by lane."""
_AHEAD = 1024
"""Numbers of samples worked out at once."""


class Samples(Protocol):
    """Samples that can be picked by number."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, index: int, /) -> Sample:
        """The sample of this number."""


class SampleStream(ABC):
    """Samples k = rank, rank + world size, … of the run."""

    samples_per_epoch: int | None = None
    """How many samples there are, None where only reading them all would tell."""

    def __init__(self, *, rank: int, world_size: int) -> None:
        """Stand at the first sample."""
        self._rank, self._world_size = rank, world_size
        self._round = 0

    def batch(self, size: int) -> npt.NDArray[np.int64]:
        """The next `size` samples of this rank, shaped (size, rows of a sample, sequence length)."""
        return np.stack([self._next() for _ in range(size)])

    def position(self) -> Position:
        """This rank's part of the position."""
        return {"next": self._round}

    def move(self, position: Position) -> None:
        """Go on where all ranks' parts, merged, stand."""
        self._round, rest = divmod(position["next"], self._world_size)
        if rest:
            raise KfjobError(f"a position after {position['next']} samples cannot be divided among {self._world_size} ranks")

    def _next(self) -> Sample:
        number = self._round * self._world_size + self._rank
        self._round += 1
        return self._sample(number)

    @abstractmethod
    def _sample(self, number: int) -> Sample: ...


class EndlessStream(SampleStream):
    """Samples in the order of their numbers, without end."""

    def __init__(self, samples: Samples, *, rank: int, world_size: int) -> None:
        """Stand at the first one."""
        super().__init__(rank=rank, world_size=world_size)
        self._samples = samples

    def _sample(self, number: int) -> Sample:
        return self._samples[number]


class NumberedStream(SampleStream):
    """Samples that have numbers, every epoch in another order. Works with any number of ranks."""

    def __init__(self, samples: Samples, *, seed: int, rank: int, world_size: int) -> None:
        """Stand at the first sample of the first epoch."""
        super().__init__(rank=rank, world_size=world_size)
        self._samples, self._seed = samples, seed
        self.samples_per_epoch = len(samples)
        self._first, self._order = 0, np.zeros(0, np.int64)

    def _sample(self, number: int) -> Sample:
        place = (number - self._first) // self._world_size
        if not 0 <= place < len(self._order):
            self._first, place = number, 0
            self._order = self._permuted(np.arange(_AHEAD) * self._world_size + number)
        return self._samples[int(self._order[place])]

    def _permuted(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        size = len(self._samples)
        epochs, indices = np.divmod(numbers, size)
        order = np.empty_like(numbers)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            order[here] = all_permuted(indices[here].astype(np.uint64), size, mixed(int(epoch), self._seed))
        return order


class LaneStream(SampleStream):
    """Samples of lanes: sample k is the next one of lane k modulo their number, and a rank reads the lanes that fall to it."""

    def __init__(self, lanes: Lanes, *, rank: int, world_size: int) -> None:
        """Stand at the beginning of every lane."""
        super().__init__(rank=rank, world_size=world_size)
        if lanes.count % world_size:
            hint = f"`lanes: {math.lcm(lanes.count, world_size)}` serves both; it must not change while a run goes on"
            if lanes.source.lanes(math.lcm(lanes.count, world_size)) % world_size:
                hint = "tokenise it first (kfjob-tokenize): a tokenised folder serves any number of ranks"
            raise KfjobError(f"{lanes.count} lanes cannot be divided among {world_size} ranks", hint=hint)
        self._count = lanes.count
        self._lanes = {lane: lanes.open(lane) for lane in range(rank, lanes.count, world_size)}

    def _sample(self, number: int) -> Sample:
        return self._lanes[number % self._count].sample()

    def position(self) -> Position:
        """The count, and the cursor of each of this rank's lanes."""
        return super().position() | {"lanes": {str(lane): dict(vars(reader.cursor)) for lane, reader in self._lanes.items()}}

    def move(self, position: Position) -> None:
        """Take up the cursors of this rank's lanes."""
        super().move(position)
        for lane, reader in self._lanes.items():
            reader.move(Cursor(**position["lanes"][str(lane)]))


def merged(parts: Iterable[Mapping[str, Any]]) -> Position:
    """The run's position out of all ranks' parts."""
    parts = list(parts)
    position: Position = {"next": sum(part["next"] for part in parts)}
    lanes = {lane: cursor for part in parts for lane, cursor in part.get("lanes", {}).items()}
    return position | ({"lanes": lanes} if lanes else {})
