"""Samples of random tokens, to measure speed: `data: synthetic`. They need no files and only numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfjob.trainer.data.packing import Sample, shift_tokens
from kfjob.trainer.data.permutation import mix


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Practically endless samples by number; each is a function of its number and the seed."""

    length: int
    vocab_size: int
    seed: int
    count: int = 1 << 62

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        draw = np.random.Generator(np.random.Philox(key=mix(index, self.seed)))
        return shift_tokens(draw.integers(self.vocab_size, size=self.length + 1))
