"""Profiles a window of steps as a Chrome trace, and explains an out-of-memory error of the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from kfjob.base.errors import KfjobError
from kfjob.base.units import GIB
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.metrics import log
from kfjob.trainspec.memory import estimate_memory
from kfjob.trainspec.memory_changes import describe_savings
from kfjob.trainspec.memory_setup import make_setup
from kfjob.trainspec.train_spec import TrainSpec


class StepProfiler:
    """Profiles steps `profile_from` to `profile_from + profile_steps - 1` on every rank; a context manager."""

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Record nothing yet."""
        self._first, self._steps = spec.profile_from, spec.profile_steps
        self._folder, self._ranks = Path(spec.profile_dir).expanduser(), ranks
        self._profiler: torch.profiler.profile | None = None

    def begin_step(self, step: int) -> None:
        """Start the profiler before the first step of the window, and write the trace after the last."""
        if self._first is None:
            return
        if self._profiler and step >= self._first + self._steps:
            self._write(self._profiler, last=str(step - 1))
        elif not self._profiler and step == self._first:
            self._profiler = torch.profiler.profile(record_shapes=True, profile_memory=True)
            self._profiler.start()

    def __enter__(self) -> Self:
        """Return the profiler."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Write the trace if the run ends within the window."""
        if self._profiler:
            self._write(self._profiler, last="end")

    def _write(self, profiler: torch.profiler.profile, *, last: str) -> None:
        profiler.stop()
        path = self._folder / f"steps-{self._first}-{last}-rank-{self._ranks.rank}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(path))
        except (OSError, RuntimeError) as error:
            log.warning("Trace not written to %s: %s", path, error)
        else:
            log.info("Trace %s", path)
        self._profiler = None


@contextmanager
def explain_out_of_memory(spec: TrainSpec, ranks: Ranks) -> Iterator[None]:
    """Turn the allocator's error into one with numbers, and write a snapshot of the allocations.

    With `debug` the snapshot also names the line of each allocation, which slows every allocation down a little.

    Raises:
        KfjobError: the device ran out of memory.
    """
    cuda = ranks.device.type == "cuda"
    if cuda and spec.debug:
        torch.cuda.memory._record_memory_history(enabled="state", stacks="python")  # noqa: SLF001 -- torch documents no other way
    try:
        yield
    except torch.OutOfMemoryError as error:
        lines = [str(error).splitlines()[0], *describe_memory(spec, ranks)]
        if cuda:
            path = Path(spec.profile_dir).expanduser() / f"memory-rank-{ranks.rank}.pickle"
            with suppress(OSError, RuntimeError):
                path.parent.mkdir(parents=True, exist_ok=True)
                dump_snapshot: Any = torch.cuda.memory._dump_snapshot  # noqa: SLF001 -- torch documents no other way
                dump_snapshot(str(path))
                lines.append(f"snapshot for https://pytorch.org/memory_viz: {path}")
        raise KfjobError("the GPU is out of memory", cause="\n".join(lines), hint=suggest_changes(spec, ranks)) from error


def describe_memory(spec: TrainSpec, ranks: Ranks) -> list[str]:
    """Return the estimate of trainspec/memory.py for this rank, and the memory of the device."""
    setup = make_setup(spec, world_size=ranks.world_size, local_world_size=ranks.local_world_size)
    lines = []
    if setup:
        estimate = estimate_memory(setup)
        largest_first = sorted(estimate.rows(), key=lambda row: -row[1])
        parts = ", ".join(f"{name} {size / GIB:.2f}" for name, size in largest_first if size)
        lines.append(f"needs about {estimate.peak / GIB:.2f} GiB on each of {ranks.world_size} ranks: {parts}")
    if ranks.device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        allocated = torch.cuda.memory_allocated()
        lines.append(f"the device has {total / GIB:.2f} GiB, {free / GIB:.2f} free; this rank uses {allocated / GIB:.2f}")
    return lines


def suggest_changes(spec: TrainSpec, ranks: Ranks) -> str:
    """Return a hint with the changes that save memory, each with its effect, the cheapest first."""
    setup = make_setup(spec, world_size=ranks.world_size, local_world_size=ranks.local_world_size)
    if setup and (savings := describe_savings(setup)):
        return f"try {', '.join(savings)}, more ranks with `strategy: fsdp`, or a shorter `sequence_length`"
    return "try `activation_checkpointing: true`, a smaller `micro_batch_size`, or more ranks with `strategy: fsdp`"
