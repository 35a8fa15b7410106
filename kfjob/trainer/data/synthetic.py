"""Samples of random tokens, to measure speed: `data: synthetic`. They need no files and only numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfjob.trainer.data.documents import Document
from kfjob.trainer.data.packing import Sample, pack_documents, shift_tokens
from kfjob.trainer.data.permutation import mix

DOCUMENTS = 8
"""Largest number of documents in a sample that packs them; their lengths are random."""


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Practically endless samples by number; each is a function of its number and the seed."""

    length: int
    vocab_size: int
    seed: int
    documents: bool = False
    """Whether a sample holds documents with separate attention."""
    count: int = 1 << 62

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        draw = np.random.Generator(np.random.Philox(key=mix(index, self.seed)))
        tokens = draw.integers(self.vocab_size, size=self.length + 1)
        if not self.documents:
            return shift_tokens(tokens)
        ends = np.unique([*draw.integers(1, self.length + 1, size=DOCUMENTS - 1), self.length])
        documents = [Document(tokens[begin : end + 1]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        return pack_documents(documents, self.length, padding=0, positions=True)
