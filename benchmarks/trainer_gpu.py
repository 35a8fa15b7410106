"""The trainer on one GPU, compared with a plain transformers + torch.compile loop and transformers' Trainer, in one run.

    python benchmarks/trainer_gpu.py [--steps N] [--only NAME …] [--out FILE]     # on a GPU, bf16
    python benchmarks/trainer_gpu.py --smoke                                      # the same programs, tiny, on a CPU

Each case is a process with random tokens, without evaluation or checkpoints; the first third of its steps does not count. The
table shows tokens/s, MFU (kfjob/trainer/flops.py: 6 (N - N_embedding) + 12 L h d s over the vendor's dense 16-bit peak), peak
memory, the estimate of spec/memory.py, and published figures; below it are the ratios with goals. One GPU exchanges nothing
between ranks, so these figures do not compare with those of several GPUs. `--out` writes the figures of every step. `--only`
selects cases by the start of their names, for use with a time limit; `kill` and `stall` are the last two. No network is needed.
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
from kfjob.spec.memory import estimate_memory
from kfjob.spec.memory_setup import make_setup
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
    program: Literal["kfjob", "by-hand", "trainer"] = "kfjob"
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
"""(case, baseline case, lowest ratio of their tokens/s)."""
MINIMUM_MFU = 0.45
"""For the best 1B case; 0.5 is the stretch goal."""


@dataclass(frozen=True)
class Result:
    """The figures of one run."""

    speed: float
    """Tokens/s: the median of the counted steps."""
    mfu: float | None
    peak_memory: float


def make_spec(case: Case, steps: int, *, smoke: bool) -> TrainSpec:
    """Return the spec of a case; a smoke test uses a tiny model."""
    common = {"strategy": "fsdp", "precision": "bf16", "data": "synthetic", "max_steps": steps, "log_every": 1}
    return TrainSpec.model_validate(common | case.changes | (TINY if smoke else {}))


def run_case(case: Case, spec: TrainSpec, raw: list[dict[str, Any]]) -> Result:
    """Run the case; append the figures of every step to `raw`."""
    tokens = spec.micro_batch_size * spec.sequence_length
    if case.program == "kfjob":
        with tempfile.TemporaryDirectory() as folder:
            raw += run_trainer(spec, Path(folder) / "figures.jsonl")
        speeds = [line["tokens_per_second_per_device"] for line in raw]
        memory = raw[-1]["peak_memory"]
    else:
        output = run_python(HERE / "plain_loops.py", case.program, spec.model_dump_json())
        raw.append(json.loads(output.splitlines()[-1]))
        speeds = [tokens / (end - begin) for begin, end in pairwise(raw[0]["ends"])]
        memory = raw[0]["peak_memory"]
    speed = statistics.median(speeds[len(speeds) // 3 :])
    return Result(speed, compute_mfu(spec, speed), memory)


def run_trainer(spec: TrainSpec, file: Path) -> list[dict[str, Any]]:
    """Run the trainer; return the figures of its steps, which it writes to `file`."""
    run_python("-m", "kfjob.trainer", *to_argv(spec.model_copy(update={"metrics_file": str(file)})))
    return read_steps(file)


def run_python(*arguments: str | Path) -> str:
    """Run a Python process and return its stdout.

    Raises:
        RuntimeError: the process failed; the message is the end of its output.
    """
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError((result.stdout + result.stderr)[-2000:])
    return result.stdout


def read_steps(file: Path) -> list[dict[str, Any]]:
    """Return the step lines of a metrics file."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in map(json.loads, lines) if "loss" in line]


def compute_mfu(spec: TrainSpec, speed: float) -> float | None:
    """Return the model FLOPs utilisation at this number of tokens/s."""
    import torch

    from kfjob.trainer import flops
    from kfjob.trainer.model import build_meta_model

    peak = flops.device_peak_flops(spec, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    model = build_meta_model(spec)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return speed * flops.model_flops_per_token(model, parameters, spec.sequence_length) / peak if peak else None


def format_row(case: Case, spec: TrainSpec, result: Result) -> str:
    """Return a line of the table."""
    share = "      ?" if result.mfu is None else f"{100 * result.mfu:5.1f} %"
    setup = make_setup(spec, world_size=1, local_world_size=1) if case.program == "kfjob" else None
    estimate = f"{estimate_memory(setup).peak / GIB:6.1f}" if setup else "     -"
    return f"{case.name:<40} {result.speed:>9.0f} {share} {result.peak_memory / GIB:>7.1f} {estimate}  {case.published}"


def format_goals(results: dict[str, Result]) -> list[str]:
    """Return the lines with goals, for the cases that have run."""
    best = max((result.mfu or 0 for name, result in results.items() if name.startswith("1B")), default=0)
    return [f"best MFU at 1B: {100 * best:.1f} % (goal: at least {100 * MINIMUM_MFU:.0f} %)"] + [
        f"{name} / {base}: {results[name].speed / results[base].speed:.2f} (goal: at least {minimum})"
        for name, base, minimum in GOALS
        if name in results and base in results
    ]


def kill_and_resume(spec: TrainSpec, folder: Path) -> str:
    """Kill the trainer with SIGKILL, resume, and compare every loss bit for bit with an uninterrupted run."""
    uninterrupted = {line["step"]: line["loss"] for line in run_trainer(spec, folder / "whole.jsonl")}
    interrupted = folder / "parts.jsonl"
    spec = spec.model_copy(update={"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 2})
    argv = to_argv(spec.model_copy(update={"metrics_file": str(interrupted)}))
    child = subprocess.Popen([sys.executable, "-m", "kfjob.trainer", *argv], stdout=subprocess.DEVNULL)
    while child.poll() is None and len(read_steps(interrupted)) < len(uninterrupted) // 2:
        time.sleep(0.01)
    child.kill()
    child.wait()
    steps_before = len(read_steps(interrupted))
    resumed = run_trainer(spec, interrupted)[steps_before:]
    equal = all(uninterrupted[line["step"]] == line["loss"] for line in read_steps(interrupted)) and resumed[-1]["step"] == max(
        uninterrupted
    )
    verdict = "equal to the bit" if equal else "DIFFER"
    return f"killed after step {steps_before}, resumed with step {resumed[0]['step']}: losses {verdict}"


def measure_stall(*, smoke: bool) -> str:
    """Run checkpoint.py and return its output."""
    return run_python(HERE / "checkpoint.py", "1" if smoke else "5")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    only, steps = tuple(options.only), 6 if options.smoke else options.steps
    results: dict[str, Result] = {}
    failed = []
    print(f"{'case':<40} {'tokens/s':>9} {'MFU':>7} {'GiB':>7} {'theory':>6}  published", flush=True)
    for case in CASES:
        if not case.name.startswith(only):
            continue
        spec, raw = make_spec(case, steps, smoke=options.smoke), list[dict[str, Any]]()
        try:
            results[case.name] = run_case(case, spec, raw)
        except RuntimeError as error:  # a case that is too large for this GPU must not stop the others
            print(f"{case.name:<40} FAILED\n{error}", flush=True)
            failed.append(case.name)
            continue
        print(format_row(case, spec, results[case.name]), flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps({"case": case.name, "spec": spec.model_dump(mode="json"), "raw": raw}) + "\n")
    print("\n".join(format_goals(results)), flush=True)
    if "kill".startswith(only):
        spec = make_spec(CASES[0], 12, smoke=options.smoke).model_copy(update={"deterministic": True})
        with tempfile.TemporaryDirectory() as folder:
            print(kill_and_resume(spec, Path(folder)), flush=True)
    if "stall".startswith(only):
        print(measure_stall(smoke=options.smoke), end="")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
