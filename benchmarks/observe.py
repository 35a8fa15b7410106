"""What observation costs: the scan of lines that do not matter, and `reduce` for lines of every kind.

    python benchmarks/observe.py

The baseline of each scan is `for line in lines: marker in line` over the same lines in the same run, cut and decoded
beforehand. The prefilter gets bytes and has to find where lines begin; cutting and decoding the same bytes and looking for one
literal is told beside it.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence

from kfjob.events import Event, LogLine
from kfjob.observe.config import ObserveConfig
from kfjob.observe.prefilter import Prefilter
from kfjob.observe.view import JobView, reduce_all

COUNT = 100_000
BLOCK = 1 << 14
"""Bytes of a block, as a reader of a busy log has them."""
BASELINES = ("master_addr=", "Loss: ")
KINDS: dict[str, Callable[[int], str]] = {
    "nccl": lambda i: (
        f"llama-worker-3:312:{i} [{i % 8}] NCCL INFO Channel {i % 32:02d}/0 : {i % 8}[{i % 8}] -> 7[7] via P2P/CUMEM"
    ),
    "json": lambda i: f'{{"ts": "2026-11-21T06:18:{i % 60:02d}Z", "level": "info", "msg": "fetched shard {i} of 4096 in 1 s"}}',
    "prose": lambda i: f"sample {i}: the quick brown fox jumps over the lazy dog, and the dog does not care about it at all",
}


def bare(lines: Sequence[str], marker: str) -> None:
    """The baseline."""
    for line in lines:
        marker in line  # noqa: B015 - the scan alone is what is timed


def cut(blocks: Sequence[bytes], marker: str) -> None:
    """The baseline, from the bytes on."""
    for block in blocks:
        bare(block.decode().split("\n"), marker)


def sifted(blocks: Sequence[bytes], prefilter: Prefilter) -> None:
    """Ours."""
    for block in blocks:
        prefilter.select(block)


def nanoseconds(count: int, work: Callable[..., object], *arguments: object) -> float:
    """Of CPU per line, the fastest of nine runs (the machine may be shared)."""
    taken = []
    for _ in range(9):
        began = time.process_time()
        work(*arguments)
        taken.append(time.process_time() - began)
    return min(taken) / count * 1e9


def scan(config: ObserveConfig, *, diagnosis: bool = False) -> None:
    """Lines that do not match."""
    prefilter = Prefilter(config, diagnosis=diagnosis)
    print(
        f"scan for {len(prefilter.literals)} literals ({config.trainer or 'every format'}{', every rule' if diagnosis else ''})"
    )
    for name, make in KINDS.items():
        lines = [make(i) for i in range(COUNT)]
        blocks = in_blocks(lines)
        assert not any(map(prefilter.select, blocks))
        ours = nanoseconds(COUNT, sifted, blocks, prefilter)
        against = {f"`{marker}`": nanoseconds(COUNT, bare, lines, marker) for marker in BASELINES}
        against["cutting, decoding, `Loss: `"] = nanoseconds(COUNT, cut, blocks, "Loss: ")
        ratios = ", ".join(f"{ours / base:.1f} times {what} ({base:.0f})" for what, base in against.items())
        print(f"  {name:6} {ours:4.0f} ns a line: {ratios}")


def in_blocks(lines: Sequence[str]) -> list[bytes]:
    """Whole lines, together about as long as a block."""
    each = BLOCK // len(lines[0])
    return ["".join(f"{line}\n" for line in lines[i : i + each]).encode() for i in range(0, len(lines), each)]


def reductions(pods: int) -> None:
    """What `reduce` takes a line, with so many pods."""
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
    """Print the figures."""
    scan(ObserveConfig(trainer="kfjob", rendezvous="c10d"))
    scan(ObserveConfig(trainer="kfjob", rendezvous="etcd"))
    scan(ObserveConfig(trainer="reference"))
    scan(ObserveConfig())
    scan(ObserveConfig(trainer="kfjob", rendezvous="c10d"), diagnosis=True)
    for pods in (2, 64, 1000):
        reductions(pods)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
