"""The cost of reading progress: lines per second with the known formats alone, and with the general reader.

    python benchmarks/progress.py LOG...

Each LOG is a real log. Without one, the recorded logs of the tests are read.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kfjob.events import LogLine
from kfjob.observe.prefilter import Prefilter
from kfjob.observe.progress import FORMATS
from kfjob.observe.view import JobView, reduce_all
from kfjob.spec.observe_config import ObserveConfig

RECORDED = Path(__file__).parents[1] / "tests" / "data"
REPEATS = 7
KNOWN = ObserveConfig(trainer="reference")
"""The known formats alone: one trainer switches the general reader off."""


def read_log(config: ObserveConfig, block: bytes) -> int:
    """Read a log as kfjob does; return the number of lines that passed the prefilter."""
    selected = [block[start:end].decode(errors="replace") for start, end in Prefilter(config).select(block)]
    reduce_all(JobView(config=config), [LogLine(pod="w-0", text=text) for text in selected])
    return len(selected)


def lines_per_second(config: ObserveConfig, blocks: list[bytes]) -> float:
    """Return the lines per second of CPU time, of the fastest run."""
    lines = sum(block.count(b"\n") for block in blocks)
    durations = []
    for _ in range(REPEATS):
        start = time.process_time()
        for block in blocks:
            read_log(config, block)
        durations.append(time.process_time() - start)
    return lines / min(durations)


def main(paths: list[Path]) -> None:
    """Print the lines per second with and without the general reader."""
    blocks = [path.read_bytes() for path in paths]
    known, general = lines_per_second(KNOWN, blocks), lines_per_second(ObserveConfig(), blocks)
    selected = sum(read_log(ObserveConfig(), block) for block in blocks)
    lines = sum(block.count(b"\n") for block in blocks)
    print(f"{lines} lines of {len(paths)} logs, {selected} of them pass the prefilter")
    print(f"one known format of {len({item.name for item in FORMATS})}: {known:,.0f} lines/s")
    print(f"every format and the general reader: {general:,.0f} lines/s, {known / general:.2f} times slower")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or sorted(RECORDED.glob("**/*.log")))
