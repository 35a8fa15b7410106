"""A thread reads the next steps; the position is that of the steps that were taken."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from kfjob.base.errors import KfjobError
from kfjob.trainer.data.prefetch import DEPTH, Prefetcher
from kfjob.trainer.data.sources import open_data
from kfjob.trainer.data.stream import SampleStream
from kfjob.trainspec.train_spec import TrainSpec

CPU = torch.device("cpu")
KINDS = {"stream": {}, "documents": {"packing": "documents"}, "synthetic": {"data": "synthetic"}}


def open_stream(tiny, **change):
    return open_data(TrainSpec(**tiny | change), rank=1, world_size=2).train


@pytest.mark.parametrize("change", KINDS.values(), ids=KINDS)
def test_steps_and_positions_equal_those_of_the_stream(tiny, change):
    plain = open_stream(tiny, **change)
    with Prefetcher(open_stream(tiny, **change), CPU, micro_batches=3, size=2) as prefetcher:
        for _ in range(20):
            assert prefetcher.position() == plain.position()
            assert prefetcher.samples_read == plain.samples_read
            expected = np.stack([plain.read_batch(2) for _ in range(3)])
            assert (prefetcher.next_step().samples() == expected).all()
        later = open_stream(tiny, **change)
        if "lanes" in prefetcher.position():
            later.seek({**prefetcher.position(), "next": prefetcher.samples_read})
            assert (later.read_batch(6) == prefetcher.next_step().samples().reshape(6, -1, tiny["sequence_length"])).all()


class CountedStream(SampleStream):
    """Counts the samples that were read; `broken` is the number of one that cannot be read."""

    def __init__(self, broken: int | None = None) -> None:
        super().__init__(rank=0, world_size=1)
        self.broken = broken
        self.threads: set[str] = set()
        self.third_step = threading.Event()

    def _read(self, number):
        self.threads.add(threading.current_thread().name)
        if number == DEPTH:
            self.third_step.set()
        if number == self.broken:
            raise KfjobError("cannot read sample")
        return np.full((2, 4), number, dtype=np.int64)


def test_thread_reads_a_bounded_number_of_steps_ahead():
    stream = CountedStream()
    with Prefetcher(stream, CPU, micro_batches=1, size=1) as prefetcher:
        assert prefetcher.next_step().samples()[0, 0, 0, 0] == 0
        assert stream.third_step.wait(30)
        for number in range(1, 9):
            assert stream.samples_read <= number + DEPTH
            assert prefetcher.next_step().samples()[0, 0, 0, 0] == number
    assert threading.main_thread().name not in stream.threads


def test_error_of_a_later_step_is_raised_at_that_step():
    with Prefetcher(CountedStream(broken=4), CPU, micro_batches=1, size=1) as prefetcher:
        for _ in range(4):
            prefetcher.next_step()
        with pytest.raises(KfjobError, match="cannot read sample"):
            prefetcher.next_step()
