"""The trainer on one GPU, beside a plain transformers + torch.compile loop and transformers' Trainer, in one run.

    python benchmarks/trainer_gpu.py [--steps N] [--only NAME …] [--out FILE]     on a GPU, bf16
    python benchmarks/trainer_gpu.py --smoke                                      the same programs, tiny, on a CPU

Every case is a process of its own, on random tokens, without evaluation or checkpoints; the first third of its steps is not
counted. The table has tokens/s, MFU (kfjob/trainer/flops.py: 6 (N - N_embedding) + 12 L h d s over the maker's dense 16-bit
peak), peak memory beside what spec/memory.py says, and what others have published; below it the ratios that are goals. One GPU
moves nothing between ranks: figures of several GPUs are not the same thing. `--out` keeps every step's figures. `--only` takes
beginnings of names, for where a command has a time limit; `kill` and `stall` are the last two. No network is needed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from kfjob.spec.arguments import to_argv
from kfjob.spec.memory import estimate_memory, make_setup
from kfjob.spec.models import ModelShape
from kfjob.spec.train import TrainSpec
from kfjob.units import GIB

HERE = Path(__file__).parent
MPT_LIKE = ModelShape(
    architecture="gpt_neox",
    vocab_size=50432,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=24,
    num_attention_heads=16,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
)
ONE_B: dict[str, Any] = {"model": "llama-3.2-1b", "sequence_length": 4096, "micro_batch_size": 4, "loss_chunk": 0}
COMPILED: dict[str, Any] = {"compile": True}
CHUNKED: dict[str, Any] = {"loss_chunk": 1024}
SELECTIVE: dict[str, Any] = {"activation_checkpointing": True, "recompute": "cheap"}
TINY: dict[str, Any] = {
    "model": "micro-llama",
    "sequence_length": 64,
    "micro_batch_size": 2,
    "compile": False,
    "peak_tflops": 0.1,
}


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    changes: dict[str, Any]
    program: Literal["ours", "by-hand", "trainer"] = "ours"
    published: str = ""


CASES = (
    Case("1B eager", ONE_B),
    Case("1B compiled", ONE_B | COMPILED),
    Case("1B compiled, chunked loss", ONE_B | COMPILED | CHUNKED),
    Case("1B compiled, chunked loss, batch of 8", ONE_B | COMPILED | CHUNKED | {"micro_batch_size": 8}),
    Case("1B by hand, compiled", ONE_B | COMPILED, "by-hand"),
    Case("1B transformers' Trainer, compiled", ONE_B | COMPILED, "trainer"),
    Case("1B selective, eager", ONE_B | SELECTIVE),
    Case("1B selective, compiled", ONE_B | SELECTIVE | COMPILED),
    Case("1B selective, compiled, chunked loss", ONE_B | SELECTIVE | COMPILED | CHUNKED),
    Case(
        "1.3B like MPT, compiled, chunked loss",
        {"model": MPT_LIKE.model_dump(), "sequence_length": 2048, "micro_batch_size": 16} | COMPILED | CHUNKED,
        published="llm-foundry, 8 H100: 45455 tokens/s/GPU, 41.8 % by its formula",
    ),
    Case(
        "8B selective, compiled, bf16 states",
        {"model": "llama-3-8b", "sequence_length": 8192, "precision": "bf16-true"} | SELECTIVE | COMPILED | CHUNKED,
        published="torchtitan, 8 H100, fp32 states over 8: 6667 tokens/s/GPU, 39.0 %",
    ),
    Case("1B CPU offload, clipped", ONE_B | CHUNKED | {"cpu_offload": True, "grad_clip": 1.0}),
)
GOALS = (
    ("1B compiled", "1B eager", 1.15),
    ("1B compiled, chunked loss", "1B by hand, compiled", 1.0),
    ("1B compiled, chunked loss", "1B transformers' Trainer, compiled", 1.0),
)
"""(case, case it is measured against, least ratio of their tokens/s)."""
LEAST_MFU = 0.45
"""Of the best case at 1B; 50 % is the stretch."""


@dataclass(frozen=True)
class Measured:
    """What a run was like."""

    speed: float
    """Tokens/s, the median of the steps that count."""
    mfu: float | None
    peak_memory: float


def spec_of(case: Case, steps: int, *, smoke: bool) -> TrainSpec:
    """The case as the trainer is told it; tiny where it is a smoke test."""
    common = {"strategy": "fsdp", "precision": "bf16", "data": "synthetic", "max_steps": steps}
    return TrainSpec.model_validate(common | case.changes | (TINY if smoke else {}))


def measure(case: Case, spec: TrainSpec, raw: list[dict[str, Any]]) -> Measured:
    """Run the case; every step's figures are put into `raw`."""
    tokens = spec.micro_batch_size * spec.sequence_length
    if case.program == "ours":
        with tempfile.TemporaryDirectory() as folder:
            raw += train(spec, Path(folder) / "figures.jsonl")
        speeds = [line["tokens_per_second_per_device"] for line in raw]
        memory = raw[-1]["peak_memory"]
    else:
        said = python(HERE / "plain_loops.py", case.program, spec.model_dump_json())
        raw.append(json.loads(said.splitlines()[-1]))
        speeds = [tokens / (end - begin) for begin, end in pairwise(raw[0]["ends"])]
        memory = raw[0]["peak_memory"]
    speed = statistics.median(speeds[len(speeds) // 3 :])
    return Measured(speed, mfu(spec, speed), memory)


def train(spec: TrainSpec, file: Path) -> list[dict[str, Any]]:
    """Run the trainer until its end; the figures of its steps, which it writes to `file`."""
    python("-m", "kfjob.trainer", *to_argv(spec.model_copy(update={"metrics_file": str(file)})))
    return steps_in(file)


def python(*arguments: str | Path) -> str:
    """What such a process says.

    Raises:
        RuntimeError: it failed; the end of what it said.
    """
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-2000:])
    return done.stdout


def steps_in(file: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file that are of steps."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in map(json.loads, lines) if "loss" in line]


def mfu(spec: TrainSpec, speed: float) -> float | None:
    """The share of the device's arithmetic that so many tokens/s are."""
    import torch

    from kfjob.trainer import flops
    from kfjob.trainer.model import build_meta_model

    peak = flops.device_peak_flops(spec, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    model = build_meta_model(spec)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return speed * flops.model_flops_per_token(model, parameters, spec.sequence_length) / peak if peak else None


def row(case: Case, spec: TrainSpec, measured: Measured) -> str:
    """A line of the table."""
    share = "      ?" if measured.mfu is None else f"{100 * measured.mfu:5.1f} %"
    setup = make_setup(spec, world_size=1, local_world_size=1) if case.program == "ours" else None
    theory = f"{estimate_memory(setup).peak / GIB:6.1f}" if setup else "     -"
    return f"{case.name:<40} {measured.speed:>9.0f} {share} {measured.peak_memory / GIB:>7.1f} {theory}  {case.published}"


def goals(found: dict[str, Measured]) -> list[str]:
    """What is a goal, of what was measured."""
    best = max((measured.mfu or 0 for name, measured in found.items() if name.startswith("1B")), default=0)
    return [f"best MFU at 1B: {100 * best:.1f} % (goal: at least {100 * LEAST_MFU:.0f} %)"] + [
        f"{name} / {base}: {found[name].speed / found[base].speed:.2f} (goal: at least {least})"
        for name, base, least in GOALS
        if name in found and base in found
    ]


def kill_and_resume(spec: TrainSpec, folder: Path) -> str:
    """Kill -9 in the middle, go on, and compare every loss with an uninterrupted run's, to the bit."""
    whole = {line["step"]: line["loss"] for line in train(spec, folder / "whole.jsonl")}
    parts = folder / "parts.jsonl"
    spec = spec.model_copy(update={"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 2})
    argv = to_argv(spec.model_copy(update={"metrics_file": str(parts)}))
    child = subprocess.Popen([sys.executable, "-m", "kfjob.trainer", *argv], stdout=subprocess.DEVNULL)
    while child.poll() is None and len(steps_in(parts)) < len(whole) // 2:
        time.sleep(0.01)
    child.kill()
    child.wait()
    before = len(steps_in(parts))
    after = train(spec, parts)[before:]
    same = all(whole[line["step"]] == line["loss"] for line in steps_in(parts)) and after[-1]["step"] == max(whole)
    verdict = "equal to the bit" if same else "DIFFER"
    return f"killed after step {before}, went on with step {after[0]['step']}: losses {verdict}"


def stall(*, smoke: bool) -> str:
    """What checkpoint.py says."""
    return python(HERE / "checkpoint.py", "1" if smoke else "5")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    only, steps = tuple(given.only), 6 if given.smoke else given.steps
    found: dict[str, Measured] = {}
    failed = []
    print(f"{'case':<40} {'tokens/s':>9} {'MFU':>7} {'GiB':>7} {'theory':>6}  published", flush=True)
    for case in CASES:
        if not case.name.startswith(only):
            continue
        spec, raw = spec_of(case, steps, smoke=given.smoke), list[dict[str, Any]]()
        try:
            found[case.name] = measure(case, spec, raw)
        except RuntimeError as error:  # what is too large for this GPU must not cost the other cases
            print(f"{case.name:<40} FAILED\n{error}", flush=True)
            failed.append(case.name)
            continue
        print(row(case, spec, found[case.name]), flush=True)
        if given.out:
            with given.out.open("a") as file:
                file.write(json.dumps({"case": case.name, "spec": spec.model_dump(mode="json"), "raw": raw}) + "\n")
    print("\n".join(goals(found)), flush=True)
    if "kill".startswith(only):
        spec = spec_of(CASES[0], 12, smoke=given.smoke).model_copy(update={"deterministic": True})
        with tempfile.TemporaryDirectory() as folder:
            print(kill_and_resume(spec, Path(folder)), flush=True)
    if "stall".startswith(only):
        print(stall(smoke=given.smoke), end="")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
