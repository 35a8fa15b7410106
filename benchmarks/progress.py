"""The cost of reading progress, as ratios to an earlier commit in the same run.

    git worktree add /tmp/before d48a8b8
    python benchmarks/progress.py /tmp/before

The baseline is the commit before the general reader. Both read the same logs in turn, in processes of their own:
with the prefilter, and with `reduce` for the lines that pass it. Every log has 20,000 lines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
ROUNDS = 3
WORK = r"""
import json, sys, time
from importlib.util import find_spec
if find_spec("kfjob.joblog"):
    from kfjob.joblog.events import LogLine
    from kfjob.joblog.observe_config import ObserveConfig
    from kfjob.joblog.prefilter import Prefilter
    from kfjob.joblog.view.job_view import JobView
    from kfjob.joblog.view.reduction import reduce_all
    make = lambda: Prefilter(ObserveConfig()).select
else:  # the baseline
    from kfjob.events import LogLine
    from kfjob.observe.config import ObserveConfig
    from kfjob.observe.prefilter import Sieve
    from kfjob.observe.view import JobView, fold as reduce_all
    make = lambda: Sieve(ObserveConfig()).sift

COUNT, BLOCK, SECONDS = 20_000, 1 << 16, 2.0  # some logs take less than a millisecond, so they are read many times

def noise(i):
    return f"llama-worker-3:312:{i} [{i % 8}] NCCL INFO Channel {i % 32:02d}/0 : {i % 8}[{i % 8}] -> 7[7] via P2P/CUMEM"

def build(i):
    return (
        f"[{i}/9000] c++ -MMD -MF csrc/fused_{i % 700}.o.d -DTORCH_EXTENSION_NAME=fused -O3 -c csrc/fused_{i % 700}.cpp",
        f"#12 {i}.31 Get:{i} http://deb.debian.org/debian bookworm/main amd64 libfoo{i % 90} amd64 1.2.{i}-1 [{i} kB]",
        f"  Downloading torch_{i % 60}-2.1.0-cp311-manylinux_2_17_x86_64.whl (8{i % 10}1.2 MB)",
        "copying build/lib/pkg/module.py -> build/bdist.linux-x86_64/wheel/pkg",
    )[i % 4]

def healthy(i):
    if i % 20:
        return noise(i)
    return f"[rank0]:[titan] 2026-02-03 04:05:06,123 - root - INFO - step: {i:>2}  loss:  8.{i:05d}  grad_norm:  1.2345  " \
        f"memory: 12.34GiB(15.2%)  tps: 7,023  tflops: 91.11  mfu: 29.2%"

def progress(i):
    return f"2026-11-21 07:10:41 I [train.py:18] Batch {i} Loss: 3.00000, Speed: 4.98 samples/sec, lr: 0.000091"

def unread(i):
    return noise(i) if i % 20 else f"2026-11-21 07:10:41 INFO server - packet loss {i % 90}.5 on port {i}"

def general(i):
    return noise(i) if i % 20 else f"2026-11-21 07:10:41 INFO trainer - step {i} | loss 3.{i:05d} | lr 0.000091 | 4.98 it/s"

def measure(make_line):
    text = "".join(make_line(i) + "\n" for i in range(COUNT)).encode()
    blocks, start = [], 0
    while start < len(text):
        end = text.rfind(b"\n", start, start + BLOCK) + 1
        blocks.append(text[start:end])
        start = end
    best, spent = 1e9, 0.0
    while spent < SECONDS:
        select, state = make(), JobView()
        begin = time.process_time()
        for block in blocks:
            lines = [block[a:b].decode() for a, b in select(block)]
            state = reduce_all(state, [LogLine(pod="w-0", text=line) for line in lines])
        taken = time.process_time() - begin
        best, spent = min(best, taken), spent + taken
    return best / COUNT * 1e9

print(json.dumps({f.__name__: measure(f) for f in (noise, build, healthy, progress, unread, general)}))
"""
TITLES = {
    "noise": "NCCL noise",
    "build": "a build log",
    "healthy": "a healthy log of a known format, 5 % progress lines",
    "progress": "progress lines of a known format alone",
    "unread": "a log with 5 % lines that look like progress and do not count",
    "general": "a log of an unknown format, 5 % progress lines (the baseline does not read them)",
}


def measure(root: Path) -> dict[str, float]:
    """Return the nanoseconds per line for each log, with the kfjob in this folder."""
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", WORK], env=environment, cwd=root, capture_output=True, text=True, check=True)
    values: dict[str, float] = json.loads(done.stdout)
    return values


def main(before: Path) -> None:
    """Print the time per line before and now, and the ratio."""
    rounds = [(measure(before), measure(ROOT)) for _ in range(ROUNDS)]
    for name, title in TITLES.items():
        old, new = (median(values[name] for values in column) for column in zip(*rounds, strict=True))
        ratio = median(now[name] / earlier[name] for earlier, now in rounds)
        print(f"{ratio:5.2f} times: {old:7.0f} -> {new:7.0f} ns a line, {title}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
