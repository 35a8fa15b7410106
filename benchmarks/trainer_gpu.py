"""The trainer on one GPU beside a plain transformers + torch.compile loop and transformers' Trainer, in one run.

    python benchmarks/trainer_gpu.py [--only NAME …] [--steps N] [--out FILE]      on a GPU, bf16
    python benchmarks/trainer_gpu.py --smoke                                      the same programs, tiny, on a CPU

Every case is a process of its own. It prints a table: tokens/s, MFU (kfjob/trainer/flops.py: 6 (N - N_embedding) + 12 L h d s
over the maker's dense 16-bit peak), peak memory beside the formula's, and what others have published. Ours are runs of the
trainer itself on random tokens, evaluation and checkpoints left out; the first third of the steps is not counted. One GPU moves
nothing between ranks: figures of several GPUs are not the same thing. Needs accelerate too; no network.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfjob.spec.arguments import to_argv
from kfjob.spec.memory import GIB, estimate, setup_of
from kfjob.spec.models import ModelShape
from kfjob.spec.train import TrainSpec

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
ONE_B: dict[str, Any] = {"model": "llama-3.2-1b", "sequence_length": 4096, "micro_batch_size": 8}
COMPILED: dict[str, Any] = {"compile": True}
CHUNKED: dict[str, Any] = {"loss_chunk": 1024}
WHOLE: dict[str, Any] = {"loss_chunk": 0}
SELECTIVE: dict[str, Any] = {"activation_checkpointing": True, "recompute": "cheap"}


@dataclass(frozen=True)
class Case:
    """One row."""

    name: str
    changes: dict[str, Any]
    program: str = "trainer"
    published: str = ""


CASES = (
    Case("1B eager", ONE_B | WHOLE | {"micro_batch_size": 4}),
    Case("1B compiled", ONE_B | WHOLE | COMPILED | {"micro_batch_size": 4}),
    Case("1B compiled, chunked loss", ONE_B | CHUNKED | COMPILED),
    Case("1B eager, selective", ONE_B | CHUNKED | SELECTIVE),
    Case("1B compiled, chunked loss, selective", ONE_B | CHUNKED | COMPILED | SELECTIVE),
    Case("1B transformers + compile, by hand", ONE_B | {"micro_batch_size": 4}, "loop"),
    Case("1B transformers' Trainer", ONE_B | {"micro_batch_size": 4}, "hf"),
    Case(
        "1.3B like MPT",
        {"model": MPT_LIKE.model_dump(), "sequence_length": 2048, "micro_batch_size": 16} | CHUNKED | COMPILED,
        published="llm-foundry, 8 H100: 45455 tokens/s/GPU, 41.8 % by its formula",
    ),
    Case(
        "8B, bf16 states",
        {"model": "llama-3-8b", "sequence_length": 8192, "precision": "bf16-true"} | CHUNKED | COMPILED | SELECTIVE,
        published="torchtitan, 8 H100, fp32 states sharded over 8: 6667 compiled, 39.0 %",
    ),
    Case("1B CPU offload, clipped", ONE_B | CHUNKED | {"cpu_offload": True, "grad_clip": 1.0}),
)


def spec_of(case: Case, steps: int, *, smoke: bool) -> TrainSpec:
    """Tiny where it is a smoke test."""
    changes = {"strategy": "fsdp", "precision": "bf16", "data": "synthetic", "max_steps": steps} | case.changes
    if smoke:
        changes |= {"model": "micro-llama", "sequence_length": 64, "micro_batch_size": 2, "compile": False, "peak_tflops": 0.1}
    return TrainSpec.model_validate(changes)


def run_trainer(spec: TrainSpec, folder: Path) -> list[dict[str, Any]]:
    """The figures of its steps."""
    file = folder / "figures.jsonl"
    argv = to_argv(spec.model_copy(update={"metrics_file": str(file)}))
    done = subprocess.run([sys.executable, "-m", "kfjob.trainer", *argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr + done.stdout)[-2000:])
    return read(file)


def read(file: Path) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, file.read_text().splitlines()) if "loss" in line] if file.exists() else []


def run_baseline(kind: str, spec: TrainSpec) -> list[dict[str, Any]]:
    """In a process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, "--baseline", kind, spec.model_dump_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def baseline(kind: str, spec: TrainSpec) -> list[dict[str, Any]]:
    """The same model, optimiser and precision as others would write it: fp32 weights, bf16 by autocast, fused AdamW."""
    import torch

    from kfjob.trainer import flops
    from kfjob.trainer.metrics import peak_memory
    from kfjob.trainer.model import meta_model

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    meta = meta_model(spec)
    with device:
        model = type(meta)(meta.config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    peak = flops.peak_of(spec, device)
    per_token = flops.of_model(meta, parameters, spec.sequence_length)
    tokens = spec.micro_batch_size * spec.sequence_length
    moments = [time.monotonic()]
    steps = _by_hand(model, spec, device) if kind == "loop" else _by_trainer(model, spec)
    moments.extend(time.monotonic() for _ in steps)
    speeds = [tokens / (after - before) for before, after in itertools.pairwise(moments)]
    return [
        {
            "loss": 0.0,
            "tokens_per_second_per_device": speed,
            "mfu": speed * per_token / peak if peak else None,
            "peak_memory": peak_memory(),
        }
        for speed in speeds
    ]


def _by_hand(model: Any, spec: TrainSpec, device: Any) -> Any:
    import torch

    step_of = torch.compile(model) if device.type == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.lr, fused=True)
    for _ in range(spec.max_steps or 1):
        ids = torch.randint(model.config.vocab_size, (spec.micro_batch_size, spec.sequence_length), device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = step_of(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        yield


def _by_trainer(model: Any, spec: TrainSpec) -> Any:
    import torch
    import transformers

    ended: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            ended.append(time.monotonic())

    count = (spec.max_steps or 1) * spec.micro_batch_size
    samples = [torch.randint(model.config.vocab_size, (spec.sequence_length,)) for _ in range(count)]
    data = [{"input_ids": sample, "labels": sample} for sample in samples]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=spec.max_steps or 1,
            per_device_train_batch_size=spec.micro_batch_size,
            bf16=True,
            optim="adamw_torch_fused",
            torch_compile=torch.cuda.is_available(),
            use_cpu=not torch.cuda.is_available(),
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Clock()]).train()
    _Replay.moments = ended
    return _Replay.steps()


class _Replay:
    """transformers' Trainer keeps the loop to itself: its steps are told afterwards, with the moments they ended."""

    moments: list[float] = []  # noqa: RUF012 -- one process, one run

    @classmethod
    def steps(cls) -> Any:
        real, ended = time.monotonic, iter(cls.moments)
        time.monotonic = lambda: next(ended)
        try:
            for _ in cls.moments:
                yield
        finally:
            time.monotonic = real


def kill_and_resume(spec: TrainSpec, folder: Path) -> str:
    """kill -9 in the middle, go on, and compare every loss with an uninterrupted run's, to the bit."""
    whole = {line["step"]: line["loss"] for line in run_trainer(spec, folder / "whole")}
    (folder / "parts").mkdir()
    file = folder / "parts" / "figures.jsonl"
    changes = {"checkpoint_dir": str(folder / "c"), "checkpoint_every": 2, "metrics_file": str(file)}
    argv = to_argv(spec.model_copy(update=changes))
    child = subprocess.Popen([sys.executable, "-m", "kfjob.trainer", *argv], stdout=subprocess.DEVNULL)
    while child.poll() is None and len(read(file)) < (spec.max_steps or 1) // 2:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    before = len(read(file))
    subprocess.run([sys.executable, "-m", "kfjob.trainer", *argv], check=True, stdout=subprocess.DEVNULL)
    parts = read(file)
    same = all(whole[line["step"]] == line["loss"] for line in parts)
    resumed = parts[before]["step"] if len(parts) > before else None
    return f"killed after step {before}, went on with step {resumed}: losses {'equal to the bit' if same else 'DIFFER'}"


def row(case: Case, figures: list[dict[str, Any]], spec: TrainSpec) -> str:
    counted = figures[len(figures) // 3 :]
    speed = statistics.median(line["tokens_per_second_per_device"] for line in counted)
    mfus = [line["mfu"] for line in counted if line.get("mfu")]
    mfu = f"{100 * statistics.median(mfus):5.1f} %" if mfus else "    ?"
    memory = max(line["peak_memory"] for line in figures) / GIB
    setup = setup_of(spec, world_size=1, local_world_size=1) if case.program == "trainer" else None
    theory = f"{estimate(setup).peak / GIB:6.1f}" if setup else "     -"
    return f"{case.name:<40} {speed:>10.0f} {mfu} {memory:>8.1f} {theory}  {case.published}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--baseline", nargs=2)
    given = parser.parse_args()
    if given.baseline:
        print(json.dumps(baseline(given.baseline[0], TrainSpec.model_validate_json(given.baseline[1]))))
        return
    steps = 6 if given.smoke else given.steps
    print(f"{'case':<40} {'tokens/s':>10} {'MFU':>7} {'GiB':>8} {'theory':>6}")
    for case in CASES:
        if given.only and case.name not in given.only:
            continue
        spec = spec_of(case, steps, smoke=given.smoke)
        with tempfile.TemporaryDirectory() as folder:
            try:
                trainer = case.program == "trainer"
                figures = run_trainer(spec, Path(folder)) if trainer else run_baseline(case.program, spec)
            except RuntimeError as error:
                print(f"{case.name:<40} FAILED {str(error).splitlines()[-1]}", flush=True)
                if given.smoke:
                    raise
                continue
        print(row(case, figures, spec), flush=True)
        if given.out:
            with given.out.open("a") as file:
                file.write(json.dumps({"case": case.name, "spec": spec.model_dump(mode="json"), "figures": figures}) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "whole").mkdir()
        spec = spec_of(CASES[0], 12, smoke=given.smoke)
        print(kill_and_resume(spec.model_copy(update={"deterministic": True}), Path(folder)), flush=True)
    subprocess.run([sys.executable, str(Path(__file__).with_name("checkpoint.py")), "1" if given.smoke else "5"], check=True)


if __name__ == "__main__":
    main()
