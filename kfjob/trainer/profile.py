"""Where time and memory go: a window of steps as a Chrome trace, and what to say when the GPU's memory does not suffice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from kfjob.errors import KfjobError
from kfjob.spec.memory import estimate_memory, make_setup
from kfjob.spec.train import TrainSpec
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.metrics import log
from kfjob.units import GIB


class Window:
    """Records steps `profile_from` to `profile_from + profile_steps - 1` on every rank; a context manager."""

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Record nothing yet."""
        self._first, self._steps = spec.profile_from, spec.profile_steps
        self._folder, self._ranks = Path(spec.profile_dir).expanduser(), ranks
        self._profiler: torch.profiler.profile | None = None

    def begin(self, step: int) -> None:
        """Step number `step` is about to be computed."""
        if self._first is None:
            return
        if self._profiler and step >= self._first + self._steps:
            self._write(step - 1)
        elif not self._profiler and step == self._first:
            self._profiler = torch.profiler.profile(record_shapes=True, profile_memory=True)
            self._profiler.start()

    def __enter__(self) -> Self:
        """Nothing to do."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """The run is over, perhaps within the window."""
        if self._profiler:
            self._write(None)

    def _write(self, last: int | None) -> None:
        assert self._profiler  # noqa: S101 -- the callers'
        self._profiler.stop()
        path = self._folder / f"steps-{self._first}-{last or 'end'}-rank-{self._ranks.rank}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._profiler.export_chrome_trace(str(path))
        except (OSError, RuntimeError) as error:
            log.warning("Trace not written to %s: %s", path, error)
        else:
            log.info("Trace %s", path)
        self._profiler = None


@contextmanager
def out_of_memory(spec: TrainSpec, ranks: Ranks) -> Iterator[None]:
    """Turn the allocator's error into one with numbers, and keep a snapshot of what was allocated.

    With `debug` the snapshot also knows which line allocated what, which costs a little time at every allocation.

    Raises:
        KfjobError: the memory of the device did not suffice.
    """
    cuda = ranks.device.type == "cuda"
    if cuda and spec.debug:
        torch.cuda.memory._record_memory_history(enabled="state", stacks="python")  # noqa: SLF001 -- torch documents no other way
    try:
        yield
    except torch.OutOfMemoryError as error:
        snapshot = Path(spec.profile_dir).expanduser() / f"memory-rank-{ranks.rank}.pickle"
        kept = None
        if cuda:
            with suppress(OSError, RuntimeError):
                snapshot.parent.mkdir(parents=True, exist_ok=True)
                dump: Any = torch.cuda.memory._dump_snapshot  # noqa: SLF001 -- torch documents no other way
                dump(str(snapshot))
                kept = snapshot
        lines = [str(error).splitlines()[0], *needs(spec, ranks)]
        lines += [f"snapshot for https://pytorch.org/memory_viz: {kept}"] if kept else []
        raise KfjobError("the GPU's memory does not suffice", cause="\n".join(lines), hint=advice(spec)) from error


def needs(spec: TrainSpec, ranks: Ranks) -> list[str]:
    """What the formula of spec/memory.py says that this rank needs, and what the device has."""
    setup = make_setup(spec, world_size=ranks.world_size, local_world_size=ranks.local_world_size)
    lines = []
    if setup:
        parts = estimate_memory(setup)
        most = sorted(parts.rows(), key=lambda row: -row[1])
        of_it = ", ".join(f"{name} {size / GIB:.2f}" for name, size in most if size)
        lines.append(f"needs about {parts.peak / GIB:.2f} GiB on each of {ranks.world_size} ranks: {of_it}")
    if ranks.device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        held = torch.cuda.memory_allocated()
        lines.append(f"the device has {total / GIB:.2f} GiB, {free / GIB:.2f} free; this rank holds {held / GIB:.2f}")
    return lines


def advice(spec: TrainSpec) -> str:
    """What to change, the cheapest first."""
    steps = []
    if not spec.activation_checkpointing:
        steps.append("`activation_checkpointing: true`")
    if spec.micro_batch_size > 1:
        less = max(1, spec.micro_batch_size // 2)
        more = spec.gradient_accumulation_steps * spec.micro_batch_size // less
        steps.append(f"`micro_batch_size: {less}` with `gradient_accumulation_steps: {more}`")
    if spec.strategy in ("ddp", "dp", "none"):
        steps.append("`strategy: fsdp` on more ranks")
    elif spec.strategy == "fsdp" and spec.sharding != "full":
        steps.append("`sharding: full`")
    if not spec.cpu_offload and spec.strategy == "fsdp":
        steps.append("`cpu_offload: true`")
    return "try " + ", then ".join([*steps, "more ranks or a shorter `sequence_length`"])
