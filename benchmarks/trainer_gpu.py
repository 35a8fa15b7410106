"""The trainer on one GPU, compared with plain loops and transformers' Trainer, in one run.

    python benchmarks/trainer_gpu.py [--group NAME …] [--case NAME …] [--steps N] [--out FILE]     # on a GPU, bf16
    python benchmarks/trainer_gpu.py --smoke [--compiled]                 # the same programs, tiny, on a CPU
    python benchmarks/trainer_gpu.py --list                               # the groups and their cases

A group holds cases and their baselines; the goals are ratios within a group, so one command can run one group. Each case is a
process with random tokens, without evaluation or checkpoints, that ends after the time limit; the first third of its steps does
not count. The table shows tokens/s, MFU (kfjob/trainer/flops.py: 6 (N - N_embedding) + 12 L h d s over the vendor's dense
16-bit peak), peak memory, the estimate of trainspec/memory.py, and published figures; below it are the ratios with goals. One
GPU exchanges nothing between ranks, so these figures do not compare with those of several GPUs. `--out` writes the figures of
every step. No network is needed, only torch, transformers, accelerate and the wheels of gpu_wheels.txt;
kfjob itself need not be installed.

transformers makes a dense mask of documents, and of whole compiled models; a layer that is compiled alone gets none without
documents. So the plain loop runs in both forms. torchtitan runs if it is installed (torchtitan_loop.py).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the program runs from a checkout

from kfjob.base.units import GIB  # noqa: E402
from kfjob.trainspec.command_line import to_argv  # noqa: E402
from kfjob.trainspec.memory import estimate_memory  # noqa: E402
from kfjob.trainspec.memory_setup import make_setup  # noqa: E402
from kfjob.trainspec.model_shapes import ModelShape, count_parameters  # noqa: E402
from kfjob.trainspec.train_spec import TrainSpec, get_shape, resolve_micro_batch_size  # noqa: E402

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
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
LLAMA_8B_BLOCK = ModelShape(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=4,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=8192,
)
"""Four layers of Llama-3-8B: the matrices of the large model, with fp32 states that fit on one GPU."""
ONE_B: dict[str, Any] = {"model": "llama-3.2-1b", "sequence_length": 4096, "micro_batch_size": 4, "loss_chunk": 0}
BLOCK: dict[str, Any] = {"model": LLAMA_8B_BLOCK.model_dump(), "sequence_length": 8192, "micro_batch_size": 2, "loss_chunk": 0}
COMPILED: dict[str, Any] = {"compile": True}
CHUNKED: dict[str, Any] = {"loss_chunk": 1024}
SELECTIVE: dict[str, Any] = {"activation_checkpointing": True, "recompute": "cheap"}
DOCUMENTS: dict[str, Any] = {"packing": "documents"}
RARE_LOGS: dict[str, Any] = {"log_every": 10}
ALONE: dict[str, Any] = {"strategy": "none"}
"""As torchtitan on one GPU: nothing is wrapped for FSDP."""
FP8: dict[str, Any] = {"precision": "fp8"}
ROWWISE: dict[str, Any] = FP8 | {"fp8_recipe": "rowwise"}
TINY: dict[str, Any] = {
    "model": "micro-llama",
    "sequence_length": 64,
    "micro_batch_size": 2,
    "log_every": 1,
    "peak_tflops": 0.1,
}


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    changes: dict[str, Any]
    program: Literal["kfjob", "by-hand", "by-layer", "trainer", "torchtitan"] = "kfjob"
    published: str = ""


GROUPS: dict[str, tuple[Case, ...]] = {
    "1B": (
        Case("1B eager", ONE_B),
        Case("1B compiled", ONE_B | COMPILED),
        Case("1B compiled, chunked loss", ONE_B | COMPILED | CHUNKED),
        Case("1B compiled, chunked loss, log every 10", ONE_B | COMPILED | CHUNKED | RARE_LOGS),
        Case("1B without FSDP, as above", ONE_B | COMPILED | CHUNKED | RARE_LOGS | ALONE),
        Case("1B by hand, compiled whole", ONE_B | COMPILED, "by-hand"),
        Case("1B by hand, compiled by layer", ONE_B | COMPILED, "by-layer"),
        Case("1B by hand, by layer, log every 10", ONE_B | COMPILED | RARE_LOGS, "by-layer"),
        Case("1B transformers' Trainer, compiled", ONE_B | COMPILED, "trainer"),
        Case("1B torchtitan", ONE_B | COMPILED | CHUNKED | RARE_LOGS, "torchtitan"),
    ),
    "8B-block": (
        Case("8B block compiled, chunked loss", BLOCK | COMPILED | CHUNKED | RARE_LOGS),
        Case("8B block without FSDP, as above", BLOCK | COMPILED | CHUNKED | RARE_LOGS | ALONE),
        Case("8B block selective, compiled, chunked", BLOCK | SELECTIVE | COMPILED | CHUNKED | RARE_LOGS),
        Case("8B block by hand, compiled by layer", BLOCK | COMPILED | RARE_LOGS, "by-layer"),
        Case("8B block by hand, compiled whole", BLOCK | COMPILED | RARE_LOGS, "by-hand"),
        Case("8B block torchtitan", BLOCK | COMPILED | CHUNKED | RARE_LOGS, "torchtitan"),
    ),
    "documents": (
        Case("1B documents, compiled", ONE_B | COMPILED | DOCUMENTS),
        Case("1B documents, compiled, chunked loss", ONE_B | COMPILED | CHUNKED | DOCUMENTS),
        Case("1B documents by hand, by layer", ONE_B | COMPILED | DOCUMENTS, "by-layer"),
        Case("1B documents by hand, whole", ONE_B | COMPILED | DOCUMENTS, "by-hand"),
    ),
    "fp8": (
        Case("8B block in bf16, compiled, chunked", BLOCK | COMPILED | CHUNKED | RARE_LOGS),
        Case("8B block in fp8, compiled, chunked", BLOCK | COMPILED | CHUNKED | RARE_LOGS | FP8),
        Case("8B block in fp8 by row, compiled, chunked", BLOCK | COMPILED | CHUNKED | RARE_LOGS | ROWWISE),
        Case("8B block in fp8 by hand, by layer", BLOCK | COMPILED | RARE_LOGS | FP8, "by-layer"),
    ),
    "memory": (
        Case("1B selective, eager", ONE_B | SELECTIVE),
        Case("1B selective, compiled", ONE_B | SELECTIVE | COMPILED),
        Case("1B selective, compiled, chunked loss", ONE_B | SELECTIVE | COMPILED | CHUNKED),
        Case("1B compiled, chunked loss, batch of 8", ONE_B | COMPILED | CHUNKED | {"micro_batch_size": 8}),
        Case("1B CPU offload, clipped", ONE_B | CHUNKED | {"cpu_offload": True, "grad_clip": 1.0}),
    ),
    "published": (
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
    ),
    "checkpoint": (),
}
"""The cases by group; `checkpoint` kills and resumes a run, and measures how long a save stops the training."""
GOALS = (
    ("1B compiled", "1B eager", 1.15),
    ("1B compiled, chunked loss", "1B by hand, compiled by layer", 1.0),
    ("1B compiled, chunked loss", "1B transformers' Trainer, compiled", 1.0),
    ("1B compiled, chunked loss, log every 10", "1B by hand, by layer, log every 10", 1.0),
    ("1B compiled, chunked loss, log every 10", "1B torchtitan", 1.05),
    ("8B block compiled, chunked loss", "8B block by hand, compiled by layer", 1.0),
    ("8B block compiled, chunked loss", "8B block torchtitan", 1.05),
    ("1B documents, compiled", "1B documents by hand, by layer", 1.15),
    ("8B block in fp8, compiled, chunked", "8B block in bf16, compiled, chunked", 1.15),
    ("8B block in fp8, compiled, chunked", "8B block in fp8 by hand, by layer", 1.0),
)
"""(case, baseline case, lowest ratio of their tokens/s)."""
MINIMUM_MFU = 0.5
"""Goal for the best case of the group 1B."""
TIME_LIMIT = 150
"""Seconds for a case."""


@dataclass(frozen=True)
class Result:
    """The figures of one run."""

    speed: float
    """Tokens/s: the median of the counted steps."""
    mfu: float | None
    peak_memory: float


def make_spec(case: Case, steps: int, *, smoke: bool, compiled: bool = False) -> TrainSpec:
    """Return the spec of a case; a smoke test uses a tiny model, and compiles it only if `compiled`."""
    common = {"strategy": "fsdp", "precision": "bf16", "data": "synthetic", "max_steps": steps, "log_every": 1}
    common |= {"compile": False, "activation_checkpointing": False}
    changes = common | case.changes
    if smoke:
        changes |= TINY | {"compile": compiled and changes["compile"], "fp8_emulate": changes["precision"] == "fp8"}
    return TrainSpec.model_validate(changes)


def run_case(case: Case, spec: TrainSpec, raw: list[dict[str, Any]], limit: float) -> Result:
    """Run the case for at most `limit` seconds; append the figures of every step whose loss is read to `raw`."""
    tokens = resolve_micro_batch_size(spec) * spec.sequence_length * spec.log_every
    if case.program == "kfjob":
        with tempfile.TemporaryDirectory() as folder:
            raw += run_trainer(spec, Path(folder) / "figures.jsonl", limit)
        speeds = [line["tokens_per_second_per_device"] for line in raw]
        memory = raw[-1]["peak_memory"]
    else:
        program = ["benchmarks.torchtitan_loop"] if case.program == "torchtitan" else ["benchmarks.plain_loops", case.program]
        output = run_python("-m", *program, spec.model_dump_json(), limit=limit)
        raw.append(json.loads(output.splitlines()[-1]))
        speeds = [tokens / (end - begin) for begin, end in pairwise(raw[0]["ends"])]
        memory = raw[0]["peak_memory"]
    speed = statistics.median(speeds[len(speeds) // 3 :])
    return Result(speed, compute_mfu(spec, speed), memory)


def run_trainer(spec: TrainSpec, file: Path, limit: float | None = None) -> list[dict[str, Any]]:
    """Run the trainer; return the figures of its steps, which it writes to `file`."""
    run_python("-m", "kfjob.trainer", *to_argv(spec.model_copy(update={"metrics_file": str(file)})), limit=limit)
    return read_steps(file)


def run_python(*arguments: str, limit: float | None = None) -> str:
    """Run a Python process and return its stdout.

    Raises:
        RuntimeError: the process failed, or took more than `limit` seconds; the message is the end of its output.
    """
    command = [sys.executable, *arguments]
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit,
            cwd=ROOT,
            env=ENVIRONMENT,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"took more than {limit:.0f} s") from error
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
    own = [case.name for case in GROUPS["1B"] if case.program == "kfjob"]
    shares = [mfu for name in own if name in results and (mfu := results[name].mfu) is not None]
    best = [f"best MFU of kfjob at 1B: {100 * max(shares):.1f} % (goal: at least {100 * MINIMUM_MFU:.0f} %)"] if shares else []
    return best + [
        f"{name} / {base}: {results[name].speed / results[base].speed:.2f} (goal: at least {minimum})"
        for name, base, minimum in GOALS
        if name in results and base in results
    ]


def kill_and_resume(spec: TrainSpec, folder: Path) -> str:
    """Kill the trainer with SIGKILL, resume, and compare every loss bit for bit with an uninterrupted run."""
    uninterrupted = {line["step"]: line["loss"] for line in run_trainer(spec, folder / "whole.jsonl")}
    interrupted = folder / "parts.jsonl"
    spec = spec.model_copy(update={"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 2, "keep_last": 1})
    argv = to_argv(spec.model_copy(update={"metrics_file": str(interrupted)}))
    command = [sys.executable, "-m", "kfjob.trainer", *argv]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT, env=ENVIRONMENT)
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


def run_checkpoints(*, smoke: bool) -> None:
    """Print what a kill costs, if the disk has room for two checkpoints, and how long a save stops the training."""
    spec = make_spec(GROUPS["1B"][0], 12, smoke=smoke).model_copy(update={"deterministic": True})
    shape = get_shape(spec)
    assert shape
    needed = 2.2 * 12 * count_parameters(shape)  # parameters and two moments in fp32, twice, and a reserve
    with tempfile.TemporaryDirectory() as folder:
        if (free := shutil.disk_usage(folder).free) < needed:
            print(
                f"kill and resume: left out, it needs {needed / GIB:.0f} GiB in {folder}, which has {free / GIB:.0f}",
                flush=True,
            )
        else:
            print(kill_and_resume(spec, Path(folder)), flush=True)
    print(run_python("-m", "benchmarks.checkpoint", "1" if smoke else "5"), end="")


def find_obstacle(*, smoke: bool) -> str | None:
    """Return why torchtitan cannot run, or None."""
    if importlib.util.find_spec("torchtitan") is None:
        return "torchtitan is not installed"
    return "torchtitan needs a GPU" if smoke else None


def run_group(cases: Sequence[Case], options: argparse.Namespace) -> list[str]:
    """Print the table of a group and its goals; return the names of the cases that failed."""
    results: dict[str, Result] = {}
    failed = []
    print(f"{'case':<40} {'tokens/s':>9} {'MFU':>7} {'GiB':>7} {'theory':>6}  published", flush=True)
    for case in cases:
        if case.program == "torchtitan" and (reason := find_obstacle(smoke=options.smoke)):
            print(f"{case.name:<40} left out: {reason}", flush=True)
            continue
        spec = make_spec(case, options.steps, smoke=options.smoke, compiled=options.compiled)
        raw = list[dict[str, Any]]()
        try:
            results[case.name] = run_case(case, spec, raw, options.time_limit)
        except RuntimeError as error:  # a case that is too large for this GPU must not stop the others
            print(f"{case.name:<40} FAILED\n{error}", flush=True)
            failed.append(case.name)
            continue
        print(format_row(case, spec, results[case.name]), flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps({"case": case.name, "spec": spec.model_dump(mode="json"), "raw": raw}) + "\n")
    if not options.smoke:  # the ratios of tiny models mean nothing
        print("\n".join(format_goals(results)), flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--group", nargs="*", choices=GROUPS, default=list(GROUPS), help="default: all")
    parser.add_argument("--case", nargs="*", metavar="NAME", help="only these cases of the groups; default: all")
    parser.add_argument("--list", action="store_true", help="print the groups and their cases")
    parser.add_argument("--smoke", action="store_true", help="tiny models on a CPU, eager")
    parser.add_argument("--compiled", action="store_true", help="with --smoke: compile as the cases do, which is slow")
    parser.add_argument("--steps", type=int, help="default: 30")
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT, help="seconds for a case, default: %(default)s")
    parser.add_argument("--out", type=Path, help="file for the figures of every step")
    options = parser.parse_args()
    options.steps = options.steps or (6 if options.smoke else 30)
    if unknown := set(options.case or ()) - {case.name for group in options.group for case in GROUPS[group]}:
        parser.error(f"not in these groups: {', '.join(sorted(unknown))}")
    if options.list:
        for group, cases in GROUPS.items():
            print("\n  ".join([group, *(case.name for case in cases)]))
        return
    failed: list[str] = []
    for group in options.group:
        print(f"== {group}", flush=True)
        if GROUPS[group]:
            failed += run_group([case for case in GROUPS[group] if not options.case or case.name in options.case], options)
        else:
            run_checkpoints(smoke=options.smoke)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
