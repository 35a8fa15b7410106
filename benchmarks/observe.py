"""The cost of observation: the prefilter for irrelevant lines, and `reduce` for all kinds of lines.

    python benchmarks/observe.py

The baseline is `for line in lines: marker in line` for the same lines in the same run, already split and decoded. The
prefilter gets bytes and must find the line starts, so the table also shows the time to split, decode and search the same bytes.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence

from kfjob.joblog.events import Event, LogLine
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

COUNT = 100_000
BLOCK = 1 << 14
"""Bytes in a block, as when kfjob reads a busy log."""
BASELINES = ("master_addr=", "Loss: ")
KINDS: dict[str, Callable[[int], str]] = {
    "nccl": lambda i: (
        f"llama-worker-3:312:{i} [{i % 8}] NCCL INFO Channel {i % 32:02d}/0 : {i % 8}[{i % 8}] -> 7[7] via P2P/CUMEM"
    ),
    "json": lambda i: f'{{"ts": "2026-11-21T06:18:{i % 60:02d}Z", "level": "info", "msg": "fetched shard {i} of 4096 in 1 s"}}',
    "prose": lambda i: f"sample {i}: the quick brown fox jumps over the lazy dog, and the dog does not care about it at all",
}


def search_lines(lines: Sequence[str], marker: str) -> None:
    """Search decoded lines for a literal: the baseline."""
    for line in lines:
        marker in line  # noqa: B015 - only the search is timed


def decode_and_search(blocks: Sequence[bytes], marker: str) -> None:
    """Split, decode and search blocks of bytes: the baseline for bytes."""
    for block in blocks:
        search_lines(block.decode().split("\n"), marker)


def select_lines(blocks: Sequence[bytes], prefilter: Prefilter) -> None:
    """Search blocks with the prefilter."""
    for block in blocks:
        prefilter.select(block)


def nanoseconds(count: int, work: Callable[..., object], *arguments: object) -> float:
    """Return the CPU time per line of the fastest of nine runs (the machine may be shared)."""
    durations = []
    for _ in range(9):
        start = time.process_time()
        work(*arguments)
        durations.append(time.process_time() - start)
    return min(durations) / count * 1e9


def measure_prefilter(config: ObserveConfig, *, diagnosis: bool = False) -> None:
    """Measure lines that do not match."""
    prefilter = Prefilter(config, diagnosis=diagnosis)
    print(f"scan for literals ({config.trainer or 'every format'}{', every rule' if diagnosis else ''})")
    for name, make_line in KINDS.items():
        lines = [make_line(i) for i in range(COUNT)]
        blocks = join_blocks(lines)
        assert not any(map(prefilter.select, blocks))
        cost = nanoseconds(COUNT, select_lines, blocks, prefilter)
        baselines = {f"`{marker}`": nanoseconds(COUNT, search_lines, lines, marker) for marker in BASELINES}
        baselines["split, decode, `Loss: `"] = nanoseconds(COUNT, decode_and_search, blocks, "Loss: ")
        ratios = ", ".join(f"{cost / base:.1f} times {baseline} ({base:.0f})" for baseline, base in baselines.items())
        print(f"  {name:6} {cost:4.0f} ns a line: {ratios}")


def join_blocks(lines: Sequence[str]) -> list[bytes]:
    """Join whole lines to blocks of about `BLOCK` bytes."""
    lines_per_block = BLOCK // len(lines[0])
    return [
        "".join(f"{line}\n" for line in lines[i : i + lines_per_block]).encode() for i in range(0, len(lines), lines_per_block)
    ]


def measure_reduce(pods: int) -> None:
    """Measure `reduce` per line for this number of pods."""
    names = [f"llama-worker-{i}" for i in range(pods)]
    view = reduce_all(JobView(), [LogLine(pod=name, text="hello", time=0, container_id="a") for name in names])
    count = 20_000
    form = "2026-11-21 07:10:41 I [train.py:18] Batch {} Loss: 3.00000, Speed: 4.98 samples/sec, lr: 0.000091"
    kinds: dict[str, list[Event]] = {
        "noise": [LogLine(pod=names[i % pods], text=KINDS["nccl"](i), time=i, container_id="a") for i in range(count)],
        "progress": [LogLine(pod=names[0], text=form.format(i), time=i, container_id="a") for i in range(count)],
    }
    for name, events in kinds.items():
        cost = nanoseconds(count, reduce_all, view, events)
        print(f"reduce, {pods:4} pods, {name:8}: {cost / 1000:5.1f} µs a line, {cost * 2e3 / 1e7:4.1f} % of a core at 2000/s")


def main() -> None:
    """Measure, and print the figures."""
    measure_prefilter(ObserveConfig(trainer="kfjob", rendezvous="c10d"))
    measure_prefilter(ObserveConfig(trainer="kfjob", rendezvous="etcd"))
    measure_prefilter(ObserveConfig(trainer="reference"))
    measure_prefilter(ObserveConfig())
    measure_prefilter(ObserveConfig(trainer="kfjob", rendezvous="c10d"), diagnosis=True)
    for pods in (2, 64, 1000):
        measure_reduce(pods)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
