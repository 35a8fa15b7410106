"""Reads the samples of the next steps in a thread, while the device computes."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import torch

from kfjob.trainer.data.batches import HostBatches
from kfjob.trainer.data.stream import Position, SampleStream

DEPTH = 2
"""Steps to read ahead."""


class Prefetcher:
    """The micro-batches of each step. The position counts the steps taken, not the steps read ahead."""

    def __init__(self, stream: SampleStream, device: torch.device, *, micro_batches: int, size: int) -> None:
        """Continue at the position of `stream`, which only the thread reads from now on; `size` is that of a micro-batch."""
        self._stream, self._micro_batches, self._size = stream, micro_batches, size
        self._pinned = device.type == "cuda"
        self.samples_per_epoch = stream.samples_per_epoch
        self._position, self.samples_read = stream.position(), stream.samples_read
        # a new thread would pin memory with the first GPU
        initializer = (torch.cuda.set_device, (device,)) if self._pinned else (None, ())
        self._thread = ThreadPoolExecutor(1, "prefetch", *initializer)
        self._steps: deque[Future[tuple[HostBatches, Position, int]]] = deque()

    def next_step(self) -> HostBatches:
        """Return the micro-batches of the next step, and read a later one in the background.

        Raises:
            KfjobError: the data cannot be read.
        """
        while len(self._steps) <= DEPTH:
            self._steps.append(self._thread.submit(self._read))
        step, self._position, self.samples_read = self._steps.popleft().result()
        return step

    def position(self) -> Position:
        """Return this rank's part of the position after the steps that `next_step` has returned."""
        return self._position

    def __enter__(self) -> Self:
        """Return the prefetcher."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel the reads that have not begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _read(self) -> tuple[HostBatches, Position, int]:
        samples = self._stream.read_batch(self._micro_batches * self._size)
        step = samples.reshape(self._micro_batches, self._size, *samples.shape[1:])
        return HostBatches.pack(step, pinned=self._pinned), self._stream.position(), self._stream.samples_read
