"""Samples of random tokens, for measuring speed: `data: synthetic`. They need no files and no library but numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfjob.trainer.data.packing import Sample, from_stream
from kfjob.trainer.data.permutation import mixed


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Samples by number, as many as one likes; each is a function of its number and the seed."""

    length: int
    vocab_size: int
    seed: int
    count: int = 1 << 62

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        draw = np.random.Generator(np.random.Philox(key=mixed(index, self.seed)))
        return from_stream(draw.integers(self.vocab_size, size=self.length + 1))
