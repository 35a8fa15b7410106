"""The trainer on CPU, compared with hand-written code in one run.

    python -m benchmarks.trainer_cpu [step] [data] [documents] [prefetch] [startup] [--rounds N]     without a name: all

step      the trainer's loop and a hand-written one (plain_loops.py) with the same model, in one process, with DDP and with
          FSDP2 on two ranks. Both are in the same processes and alternate, so that they see the same load; on a busy machine
          the CPU time means more. Goal: 1.05
data      the trainer's batches of a tokenised folder and a plain iterator (nanoGPT's get_batch) for the same blocks. Goal: 1.1
documents forward and backward pass of packed documents, with the trainer's attention and with transformers' mask. Goal: below 1
prefetch  reading text while a device computes, in the trainer's thread and in the loop itself; the device is a pause of the
          length that reading takes. Goal: 0.6 of the time, where 0.5 hides all reading
startup   from the process start to the end of the first step, in the parts that the trainer prints, compared with the import of
          torch and transformers' Llama
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kfjob.trainspec.command_line import to_argv
from kfjob.trainspec.train_spec import TrainSpec

TINY: dict[str, Any] = {"model": "tiny-llama", "data": "synthetic", "sequence_length": 256, "precision": "fp32"}
CASES = (("none", 1), ("ddp", 1), ("fsdp", 1), ("ddp", 2), ("fsdp", 2))
TOKENS, LENGTH, BATCH = 20_000_000, 1024, 8
IMPORTS = "import torch, torch.distributed; from transformers.models.llama import LlamaConfig, LlamaForCausalLM"


class AlternatingSteps:
    """Replaces the trainer's StopRequest, which the loop asks once per micro-batch, to run and time a step of a baseline."""

    def __init__(self, baseline: Callable[[], object]) -> None:
        """Start with a step of the trainer."""
        self._baseline = baseline
        self.durations: dict[str, list[tuple[float, float]]] = {"kfjob": [], "baseline": []}
        self._since = clocks()

    def ask(self, ranks: object) -> None:  # noqa: ARG002 -- the signature of StopRequest
        """Run a step of the baseline; never request a stop."""
        self._lap("kfjob")
        self._baseline()
        self._lap("baseline")

    def _lap(self, name: str) -> None:
        (wall, cpu), self._since = self._since, clocks()
        self.durations[name].append((self._since[0] - wall, self._since[1] - cpu))


def clocks() -> tuple[float, float]:
    """Return the wall time and this process's CPU time in seconds."""
    return time.monotonic(), time.process_time()


def run_alternating_steps(spec: TrainSpec) -> None:
    """Train with both loops on each rank; print the durations on rank 0."""
    from benchmarks.plain_loops import PlainLoop
    from kfjob.trainer.distributed import Ranks
    from kfjob.trainer.metrics import StartupTimer, start_logging
    from kfjob.trainer.train import train

    ranks = Ranks.join()
    start_logging(verbose=ranks.is_rank_zero)
    loop = PlainLoop(spec, ranks.device)
    stepper: Any = AlternatingSteps(lambda: loop.step().item())
    train(spec, ranks, stepper, StartupTimer())
    if ranks.is_rank_zero:
        print(json.dumps(stepper.durations))
    ranks.leave()


def step(rounds: int) -> None:
    """Print the ratios of the medians for each strategy."""
    for strategy, ranks in CASES:
        spec = TrainSpec.model_validate(TINY | {"strategy": strategy, "micro_batch_size": 4, "max_steps": 10 * rounds})
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [sys.executable, *torchrun, "-m", "benchmarks.trainer_cpu", "--alternate", spec.model_dump_json()]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        result = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        durations = json.loads(result.stdout.splitlines()[-1])
        (wall, cpu), (base_wall, base_cpu) = (medians(durations[name][rounds:]) for name in ("kfjob", "baseline"))
        print(
            f"{strategy} on {ranks}: kfjob {1e3 * wall:.1f} ms, by hand {1e3 * base_wall:.1f}, ratio {wall / base_wall:.3f}",
            end="",
        )
        print(f"; CPU {1e3 * cpu:.1f} ms and {1e3 * base_cpu:.1f}, ratio {cpu / base_cpu:.3f}", flush=True)


def medians(pairs: list[tuple[float, float]]) -> tuple[float, ...]:
    """Return the median of each column."""
    return tuple(statistics.median(values) for values in zip(*pairs, strict=True))


def data(rounds: int) -> None:
    """Print the ratio of the CPU times to read 100 batches in one thread."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.bin"
        np.random.default_rng(1).integers(32000, size=TOKENS, dtype=np.uint16).tofile(file)
        readers = {"kfjob": trainer_batches(file), "bare": nanogpt_batches(file)}
        durations: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(4 * rounds + 1):
            for name, batches in readers.items():
                start = time.process_time()
                for _ in zip(range(100), batches, strict=False):
                    pass
                durations[name].append(time.process_time() - start)
    # the first round loads the file into memory
    cost, base = (1e4 * statistics.median(durations[name][1:]) for name in ("kfjob", "bare"))
    print(
        f"{BATCH} x {LENGTH} tokens  kfjob {cost:.0f} us of CPU, bare {base:.0f} us, ratio {cost / base:.3f}",
        flush=True,
    )


def trainer_batches(file: Path) -> Iterator[Any]:
    """Yield batches as the training loop gets them."""
    import torch

    from kfjob.trainer.data.batches import to_batch
    from kfjob.trainer.data.stream import ShuffledStream
    from kfjob.trainer.data.token_files import StreamSamples

    tokens = np.asarray(np.memmap(file, dtype="<u2", mode="r"))
    stream = ShuffledStream(StreamSamples(tokens=tokens, length=LENGTH), seed=1, rank=0, world_size=1)
    while True:
        yield to_batch(stream.read_batch(BATCH), torch.device("cpu"))


def nanogpt_batches(file: Path) -> Iterator[Any]:
    """Yield batches of the same blocks as in nanoGPT's get_batch."""
    import torch

    tokens = np.memmap(file, dtype="<u2", mode="r")
    order = np.random.default_rng(2).permutation((TOKENS - 1) // LENGTH) * LENGTH
    while True:
        for begins in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH).tolist():
            inputs = torch.stack([torch.from_numpy(tokens[i : i + LENGTH].astype(np.int64)) for i in begins])
            targets = torch.stack([torch.from_numpy(tokens[i + 1 : i + 1 + LENGTH].astype(np.int64)) for i in begins])
            yield inputs, targets


def documents(rounds: int) -> None:
    """Print the ratio of the CPU times of a forward and a backward pass."""
    import torch

    from kfjob.trainer.data.batches import to_batch
    from kfjob.trainer.loss import token_loss
    from kfjob.trainer.model import build_model
    from kfjob.trainer.strategies import SingleProcess

    spec = TrainSpec.model_validate(TINY | {"strategy": "none", "sequence_length": LENGTH, "max_steps": 1})
    model: Any = build_model(spec, SingleProcess(spec, single_rank()), torch.device("cpu"))
    torch.set_num_threads(1)
    sizes = np.diff([0, *sorted(np.random.default_rng(3).choice(LENGTH - 1, 7, replace=False) + 1), LENGTH])
    row = np.random.default_rng(4).integers(256, size=LENGTH)
    sample = np.stack([row, row, np.concatenate([np.arange(size) for size in sizes])])
    batch = to_batch(np.stack([sample] * 2), torch.device("cpu"))
    durations: dict[str, list[float]] = {}
    for _ in range(rounds + 1):
        for name in ("kfjob_documents", "sdpa"):
            model.set_attn_implementation(name)
            start = time.process_time()
            torch.autograd.backward(token_loss(model, *batch))
            durations.setdefault(name, []).append(time.process_time() - start)
    cost, base = (1e3 * statistics.median(durations[name][1:]) for name in ("kfjob_documents", "sdpa"))
    print(f"{len(sizes)} documents in {LENGTH} tokens: kfjob {cost:.0f} ms of CPU, mask {base:.0f} ms, ratio {cost / base:.3f}")


def single_rank() -> Any:
    """Return the ranks of a process without a process group."""
    import torch

    from kfjob.trainer.distributed import Ranks

    return Ranks(rank=0, world_size=1, local_rank=0, local_world_size=1, device=torch.device("cpu"), run_id="")


def prefetch(rounds: int) -> None:
    """Print the ratio of the wall times."""
    import torch

    from kfjob.trainer.data import tiny_text
    from kfjob.trainer.data.prefetch import Prefetcher
    from kfjob.trainer.data.sources import open_data
    from kfjob.trainer.data.stream import SampleStream

    draw, words = np.random.default_rng(5), [f"word{number}" for number in range(400)]
    texts = [" ".join(draw.choice(words, 200)) for _ in range(2000)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer").mkdir()
        tiny_text.train_tokenizer(texts[:200], Path(folder) / "tokenizer", vocab_size=500)
        (Path(folder) / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        spec = TrainSpec.model_validate(TINY | {"data": folder, "sequence_length": LENGTH, "max_steps": 1})

        def open_stream() -> SampleStream:
            return open_data(spec, rank=0, world_size=1).train

        def run(read: Any, pause: float) -> float:
            start = time.monotonic()
            for _ in range(4 * rounds):
                read()
                time.sleep(pause)
            return (time.monotonic() - start) / (4 * rounds)

        stream = open_stream()
        pause = run(lambda: stream.read_batch(BATCH), 0)
        base = run(lambda: stream.read_batch(BATCH), pause)
        with Prefetcher(open_stream(), torch.device("cpu"), micro_batches=1, size=BATCH) as prefetcher:
            cost = run(prefetcher.next_step, pause)
    print(f"{BATCH} x {LENGTH} tokens: kfjob {1e3 * cost:.0f} ms, in the loop {1e3 * base:.0f}, ratio {cost / base:.3f}")


def startup(rounds: int) -> None:
    """Print the medians of the parts, and the ratio of the CPU times."""
    spec = TrainSpec.model_validate(TINY | {"strategy": "fsdp", "max_steps": 1})
    parts: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {"kfjob": [], "imports": []}
    for _ in range(rounds):
        cpu["imports"].append(cpu_seconds("-c", IMPORTS)[0])
        seconds, output = cpu_seconds("-m", "kfjob.trainer", *to_argv(spec))
        cpu["kfjob"].append(seconds)
        line = next(line for line in output.splitlines() if " Startup " in line)
        for name, lap in re.findall(r"([a-z ]+) (\d+\.\d)(?:,|$)", line):
            parts.setdefault(name.strip(), []).append(float(lap))
    print(", ".join(f"{name} {statistics.median(laps):.1f} s" for name, laps in parts.items()))
    cost, imports = (statistics.median(cpu[name]) for name in ("kfjob", "imports"))
    print(f"CPU {cost:.1f} s, torch and Llama alone {imports:.1f} s, ratio {cost / imports:.2f} (median of {rounds})")


def cpu_seconds(*arguments: str) -> tuple[float, str]:
    """Run a Python process; return its CPU time and its stdout."""
    before = os.times()
    output = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, output


BENCHMARKS = {"step": step, "data": data, "documents": documents, "prefetch": prefetch, "startup": startup}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("benchmarks", nargs="*", default=list(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--alternate", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alternate:
        run_alternating_steps(TrainSpec.model_validate_json(options.alternate))
        return
    for benchmark in options.benchmarks:
        print(f"== {benchmark}", flush=True)
        BENCHMARKS[benchmark](options.rounds)


if __name__ == "__main__":
    main()
