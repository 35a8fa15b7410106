"""The micro-batches of a step: one tensor on the host, one copy to the device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kfjob.trainer.data.packing import IGNORE

_ROWS_WITH_DOCUMENTS = 3
_FEW, _SHORT = 64, 512
"""The least number of boundaries and the least bound of lengths; kernels skip empty documents, and blocks beyond the end."""


class Documents(NamedTuple):
    """The documents that samples pack."""

    positions: Tensor
    """The position of each token in its document."""
    boundaries: Tensor
    """The first token of each document, counted through all samples; the rest is filled with the number of tokens."""
    longest: int
    """A bound of their lengths."""


class Batch(NamedTuple):
    """Samples on the device; inputs and targets are shaped (samples, sequence length)."""

    inputs: Tensor
    targets: Tensor
    documents: Documents | None = None
    """None if samples do not pack documents."""


@dataclass(frozen=True, kw_only=True)
class HostBatches:
    """The micro-batches of a step on the host."""

    numbers: Tensor
    """All samples, then the boundaries of documents in each micro-batch; one dimension."""
    shape: tuple[int, ...]
    """(micro-batches, samples, rows, sequence length)."""
    boundaries: list[int]
    """The number of boundaries in each micro-batch."""
    longest: list[int]
    """The bound of the documents' lengths in each micro-batch."""
    targets: int
    """The number of targets with a loss."""

    @classmethod
    def pack(cls, samples: npt.NDArray[np.int64], *, pinned: bool = False) -> Self:
        """Pack samples shaped as `shape` into one tensor. Without documents it shares their memory, unless it is pinned."""
        has_documents = samples.shape[2] == _ROWS_WITH_DOCUMENTS
        documents = [find_documents(samples[number, :, 2]) for number in range(len(samples) if has_documents else 0)]
        flat = samples.reshape(-1)
        numbers = torch.from_numpy(np.concatenate([flat, *(begins for begins, _ in documents)]) if documents else flat)
        return cls(
            numbers=numbers.pin_memory() if pinned else numbers,
            shape=samples.shape,
            boundaries=[len(boundaries) for boundaries, _ in documents],
            longest=[longest for _, longest in documents],
            targets=count_targets(samples),
        )

    def samples(self) -> npt.NDArray[np.int64]:
        """Return all samples, shaped as `shape`."""
        samples: npt.NDArray[np.int64] = self.numbers[: math.prod(self.shape)].numpy().reshape(self.shape)
        return samples

    def to(self, device: torch.device) -> list[Batch]:
        """Copy all micro-batches to the device; the host does not wait if the memory is pinned."""
        numbers = self.numbers.to(device, non_blocking=True)
        samples, *boundaries = numbers.split_with_sizes([math.prod(self.shape), *self.boundaries])
        batches = []
        for number, rows in enumerate(samples.view(self.shape)):
            inputs, targets, *positions = rows.unbind(1)
            documents = None
            if positions:
                documents = Documents(positions[0], boundaries[number].to(torch.int32), self.longest[number])
            batches.append(Batch(inputs, targets, documents))
        return batches


def to_batch(samples: npt.NDArray[np.int64], device: torch.device) -> Batch:
    """Copy one micro-batch to the device; it is shaped (samples, rows, length), as data/packing.py returns them."""
    return HostBatches.pack(samples[None]).to(device)[0]


def find_documents(positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Return the boundaries of the documents, and a bound of their lengths.

    Their number and the bound are rounded up, at least to `_FEW` and `_SHORT`: compiled code has one version for each.
    """
    begins = np.flatnonzero(positions.reshape(-1) == 0)
    longest = int(np.diff(begins, append=positions.size).max())
    boundaries = np.full(max(_FEW, 1 << len(begins).bit_length()), positions.size, dtype=np.int64)
    boundaries[: len(begins)] = begins
    return boundaries, max(_SHORT, 1 << (longest - 1).bit_length())


def count_targets(samples: npt.NDArray[np.int64]) -> int:
    """Return the number of targets with a loss in samples shaped (…, rows, length). The host need not wait for the device."""
    return int(np.count_nonzero(samples[..., 1, :] != IGNORE))
