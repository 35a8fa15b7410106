"""The trainer on CPU beside what one writes by hand, in one run.

    python -m benchmarks.trainer_cpu [step] [data] [startup] [--rounds N]     all three without a name

step      our loop over a hand-written one (plain_loops.py) of the same model, as one process, with DDP and with FSDP2 on two
          ranks. Both live in the same processes and take steps in turn, so that they meet the same disturbances; on a busy
          machine the CPU time says more. Goal: 1.05
data      our batches of a tokenised folder over a bare iterator (nanoGPT's get_batch) over the same blocks. Goal: 1.1
startup   from process start to the end of the first step, in the parts that the trainer prints, over importing torch and
          transformers' Llama alone
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kfjob.spec.arguments import to_argv
from kfjob.spec.train import TrainSpec

TINY: dict[str, Any] = {"model": "tiny-llama", "data": "synthetic", "sequence_length": 256, "precision": "fp32"}
CASES = (("none", 1), ("ddp", 1), ("fsdp", 1), ("ddp", 2), ("fsdp", 2))
TOKENS, LENGTH, BATCH = 20_000_000, 1024, 8
IMPORTS = "import torch, torch.distributed; from transformers.models.llama import LlamaConfig, LlamaForCausalLM"


class InTurn:
    """Stands in for the trainer's StopRequest, which the loop asks once a step: it takes one by hand then, and times both."""

    out_of_time = False

    def __init__(self, spec: TrainSpec, device: Any) -> None:
        """Begin with a step of ours."""
        from benchmarks.plain_loops import PlainLoop

        self._by_hand = PlainLoop(spec, device)
        self.took: dict[str, list[tuple[float, float]]] = {"ours": [], "by hand": []}
        self._since = now()

    @property
    def signal(self) -> None:
        """Nobody asks to stop."""
        self._lap("ours")
        self._by_hand.step()
        self._lap("by hand")

    def _lap(self, name: str) -> None:
        (wall, cpu), self._since = self._since, now()
        self.took[name].append((self._since[0] - wall, self._since[1] - cpu))


def now() -> tuple[float, float]:
    """Seconds on the wall, and of CPU time of this process."""
    return time.monotonic(), time.process_time()


def steps_in_turn(spec: TrainSpec) -> None:
    """On each rank: train by both loops, and say on rank 0 how long the steps took."""
    from kfjob.trainer.distributed import Ranks
    from kfjob.trainer.metrics import StartupTimer, start_logging
    from kfjob.trainer.train import train

    ranks = Ranks.join()
    start_logging(verbose=ranks.is_rank_zero)
    in_turn: Any = InTurn(spec, ranks.device)
    train(spec, ranks, in_turn, StartupTimer())
    if ranks.is_rank_zero:
        print(json.dumps(in_turn.took))
    ranks.leave()


def step(rounds: int) -> None:
    """Ratios of the medians, for each strategy."""
    for strategy, ranks in CASES:
        spec = TrainSpec.model_validate(TINY | {"strategy": strategy, "micro_batch_size": 4, "max_steps": 10 * rounds})
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [sys.executable, *torchrun, "-m", "benchmarks.trainer_cpu", "--in-turn", spec.model_dump_json()]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        took = json.loads(done.stdout.splitlines()[-1])
        (wall, cpu), (base_wall, base_cpu) = (medians(took[name][rounds:]) for name in ("ours", "by hand"))
        print(
            f"{strategy} on {ranks}: ours {1e3 * wall:.1f} ms, by hand {1e3 * base_wall:.1f}, ratio {wall / base_wall:.3f}",
            end="",
        )
        print(f"; CPU {1e3 * cpu:.1f} ms and {1e3 * base_cpu:.1f}, ratio {cpu / base_cpu:.3f}", flush=True)


def medians(pairs: list[tuple[float, float]]) -> tuple[float, ...]:
    """Of either number."""
    return tuple(statistics.median(values) for values in zip(*pairs, strict=True))


def data(rounds: int) -> None:
    """Ratio of the CPU time of reading a hundred batches; it is one thread."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.bin"
        np.random.default_rng(1).integers(32000, size=TOKENS, dtype=np.uint16).tofile(file)
        readers = {"ours": our_batches(file), "bare": bare_batches(file)}
        took: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(4 * rounds + 1):
            for name, batches in readers.items():
                began = time.process_time()
                for _ in zip(range(100), batches, strict=False):
                    pass
                took[name].append(time.process_time() - began)
    ours, bare = (1e4 * statistics.median(took[name][1:]) for name in ("ours", "bare"))  # the first brings it into memory
    print(f"{BATCH} x {LENGTH} tokens  ours {ours:.0f} us of CPU, bare {bare:.0f} us, ratio {ours / bare:.3f}", flush=True)


def our_batches(file: Path) -> Iterator[Any]:
    """As the training loop gets them."""
    import torch

    from kfjob.trainer.data.stream import ShuffledStream
    from kfjob.trainer.data.token_files import StreamSamples
    from kfjob.trainer.loss import to_batch

    tokens = np.asarray(np.memmap(file, dtype="<u2", mode="r"))
    stream = ShuffledStream(StreamSamples(tokens=tokens, length=LENGTH), seed=1, rank=0, world_size=1)
    while True:
        yield to_batch(stream.read_batch(BATCH), torch.device("cpu"))


def bare_batches(file: Path) -> Iterator[Any]:
    """As nanoGPT's get_batch gets them, of the same blocks."""
    import torch

    tokens = np.memmap(file, dtype="<u2", mode="r")
    order = np.random.default_rng(2).permutation((TOKENS - 1) // LENGTH) * LENGTH
    while True:
        for begins in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH).tolist():
            inputs = torch.stack([torch.from_numpy(tokens[i : i + LENGTH].astype(np.int64)) for i in begins])
            targets = torch.stack([torch.from_numpy(tokens[i + 1 : i + 1 + LENGTH].astype(np.int64)) for i in begins])
            yield inputs, targets


def startup(rounds: int) -> None:
    """Medians of the parts, and the ratio of all CPU time."""
    spec = TrainSpec.model_validate(TINY | {"strategy": "fsdp", "max_steps": 1})
    parts: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {"ours": [], "imports": []}
    for _ in range(rounds):
        cpu["imports"].append(cpu_seconds("-c", IMPORTS)[0])
        seconds, said = cpu_seconds("-m", "kfjob.trainer", *to_argv(spec))
        cpu["ours"].append(seconds)
        line = next(line for line in said.splitlines() if " Startup " in line)
        for name, lap in re.findall(r"([a-z ]+) (\d+\.\d)(?:,|$)", line):
            parts.setdefault(name.strip(), []).append(float(lap))
    print(", ".join(f"{name} {statistics.median(laps):.1f} s" for name, laps in parts.items()))
    ours, imports = (statistics.median(cpu[name]) for name in ("ours", "imports"))
    print(f"CPU {ours:.1f} s, of torch and Llama alone {imports:.1f} s, ratio {ours / imports:.2f} (median of {rounds})")


def cpu_seconds(*arguments: str) -> tuple[float, str]:
    """The CPU time that such a process takes, and what it says."""
    before = os.times()
    said = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, said


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="*", default=["step", "data", "startup"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--in-turn", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.in_turn:
        steps_in_turn(TrainSpec.model_validate_json(given.in_turn))
        return
    for what in given.what:
        print(f"== {what}", flush=True)
        {"step": step, "data": data, "startup": startup}[what](given.rounds)


if __name__ == "__main__":
    main()
