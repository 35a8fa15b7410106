"""The samples of one rank, and the position that a checkpoint keeps.

The run has one endless sequence of samples, the same for every number of ranks: sample k goes to rank k modulo the world size.
So a global batch of G samples is always [step x G, (step + 1) x G), no two ranks see the same sample, and a position that was
kept by four ranks can be taken up by two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from kfjob.errors import KfjobError
from kfjob.trainer.data.blocks import Blocks
from kfjob.trainer.data.permutation import mixed, permuted
from kfjob.trainer.data.text import Cursor, TextFile, TextLane

Sample = npt.NDArray[np.int64]
Position = dict[str, Any]
"""JSON: `next` is the number of samples given to all ranks, `lanes` the cursors of a rank's lanes by lane."""


class SampleStream(ABC):
    """Samples k = rank, rank + world size, … of the run."""

    def __init__(self, *, rank: int, world_size: int) -> None:
        """Stand at the first sample."""
        self._rank, self._world_size = rank, world_size
        self._round = 0

    def batch(self, size: int) -> Sample:
        """The next `size` samples of this rank, shaped (size, sequence length + 1)."""
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

    @property
    @abstractmethod
    def samples_per_epoch(self) -> int | None:
        """How many samples there are, None where only reading them all would tell."""


class BlockStream(SampleStream):
    """Samples of a tokenised folder, every epoch in another order. Works with any number of ranks."""

    def __init__(self, blocks: Blocks, *, seed: int, rank: int, world_size: int) -> None:
        """Stand at the first sample of the first epoch."""
        super().__init__(rank=rank, world_size=world_size)
        self._blocks, self._seed = blocks, seed

    def _sample(self, number: int) -> Sample:
        epoch, index = divmod(number, len(self._blocks))
        return self._blocks[permuted(index, len(self._blocks), mixed(epoch, self._seed))]

    @property
    def samples_per_epoch(self) -> int | None:
        """Whole samples in the file."""
        return len(self._blocks)


class LaneStream(SampleStream):
    """Samples of streamed text: sample k is the next one of lane k modulo V, and a rank reads the lanes that fall to it."""

    def __init__(self, file: TextFile, *, lanes: int, length: int, window: int, seed: int, rank: int, world_size: int) -> None:
        """Stand at the beginning of every lane."""
        super().__init__(rank=rank, world_size=world_size)
        if lanes % world_size:
            hint = f"`lanes: {math.lcm(lanes, world_size)}` serves both; it must not change while a run goes on"
            raise KfjobError(f"{lanes} lanes cannot be divided among {world_size} ranks", hint=hint)
        self._count = lanes
        self._lanes = {
            lane: TextLane(file, lane=lane, lanes=lanes, length=length, window=window, seed=seed)
            for lane in range(rank, lanes, world_size)
        }

    def _sample(self, number: int) -> Sample:
        return self._lanes[number % self._count].sample()

    def position(self) -> Position:
        """The count, and the cursor of each of this rank's lanes."""
        return super().position() | {"lanes": {str(lane): asdict(reader.cursor) for lane, reader in self._lanes.items()}}

    def move(self, position: Position) -> None:
        """Take up the cursors of this rank's lanes."""
        super().move(position)
        for lane, reader in self._lanes.items():
            reader.move(Cursor(**position["lanes"][str(lane)]))

    @property
    def samples_per_epoch(self) -> int | None:
        """Not known without tokenising everything."""
        return None


def merged(parts: Iterable[Mapping[str, Any]]) -> Position:
    """The run's position out of all ranks' parts."""
    parts = list(parts)
    position: Position = {"next": sum(part["next"] for part in parts)}
    lanes = {lane: cursor for part in parts for lane, cursor in part.get("lanes", {}).items()}
    return position | ({"lanes": lanes} if lanes else {})
