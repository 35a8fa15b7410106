"""The cost of diagnosing logs with many errors, as ratios to an ordinary log in the same run.

    python benchmarks/diagnosis.py [OTHER_CHECKOUT]

The baseline is `reduce` for the same lines without a diagnosis. Every log has about 50,000 lines. With another checkout the
program measures that one too, in turn.
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
import json, time
from kfjob.joblog.events import LogLine
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.view.reduction import reduce
from kfjob.joblog.view.job_view import JobView

COUNT = 50_000
NOUNS = ("shard", "cache", "token", "stream", "worker", "bucket", "index", "row", "codec", "frame", "object", "page")

def name(i):
    return " ".join(NOUNS[i // 12 ** place % 12] for place in range(5))

def ordinary(i):
    return f"llama-worker-3:312:{i} [{i % 8}] NCCL INFO Channel {i % 32:02d}/0 : {i % 8}[{i % 8}] -> 7[7] via P2P/CUMEM"

def numbers(i):
    return f"2026-11-21 07:10:{i % 60:02d} ERROR loader: failed to read sample {i * 37} of shard {i % 4096}"

def bare(i):
    return f"RuntimeError: CUDA out of memory. Tried to allocate {i % 900}.00 MiB. GPU {i % 8} has a total of 79.15 GiB"

def different(i):
    return f"ERROR loader: cannot read {name(i)}"

def tracebacks(i):
    return (
        "Traceback (most recent call last):", '  File "/app/data.py", line 41, in read', "    return self.rows[index]",
        f"IndexError: index {i} is out of bounds", "skipping it",
    )[i % 5]

def measure(events, *, diagnosis):
    view, collector, begin = JobView(), SymptomCollector(), time.process_time()
    for event in events:
        view = reduce(view, event)
        if diagnosis:
            collector.feed(event, view)
    return (time.process_time() - begin) / COUNT * 1e6

results = {}
for form in (ordinary, numbers, bare, different, tracebacks):
    events = [LogLine(pod="w-0", text=form(i)) for i in range(COUNT)]
    results[form.__name__] = [measure(events, diagnosis=diagnosis) for diagnosis in (False, True)]
print(json.dumps(results))
"""
TITLES = {
    "ordinary": "lines without an error",
    "numbers": "one error with changing numbers",
    "bare": "the last line of a traceback, alone, with changing numbers",
    "different": "errors with different texts",
    "tracebacks": "one traceback with changing numbers",
}


def measure(root: Path) -> dict[str, tuple[float, float]]:
    """Return the microseconds per line without and with a diagnosis for each log, with the kfjob in this folder."""
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", WORK], env=environment, cwd=root, capture_output=True, text=True, check=True)
    return {name: (values[0], values[1]) for name, values in json.loads(done.stdout).items()}


def main(roots: list[Path]) -> None:
    """Print the time per line and its ratio for each checkout."""
    rounds = [[measure(root) for root in roots] for _ in range(ROUNDS)]
    for number, root in enumerate(roots):
        print(root)
        for name, title in TITLES.items():
            pairs = [values[number][name] for values in rounds]
            plain, full = (median(column) for column in zip(*pairs, strict=True))
            ratio = median(full / plain for plain, full in pairs)
            print(f"{ratio:6.1f} times: {plain:5.1f} -> {full:5.1f} us a line, {title}")


if __name__ == "__main__":
    main([ROOT, *map(Path, sys.argv[1:])])
