"""The trainer in each of its settings on one GPU: the losses beside those of the same run in fp32.

    python benchmarks/trainer_settings.py [--jobs N] [--steps N] [SETTING …]

Each setting is a process that trains a Llama of 4 layers on the text of the installed Python (data/tiny_text.py), and N
processes run at once; so this shows what works and what it computes, not how fast it is. The table has the loss of the first
and the last step, the largest distance from fp32's loss on any step, and the limit for it. fp8 needs a GPU that has it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the program runs from a checkout

from benchmarks.trainer_gpu import read_steps, run_python  # noqa: E402
from kfjob.trainspec.command_line import to_argv  # noqa: E402
from kfjob.trainspec.model_shapes import ModelShape  # noqa: E402
from kfjob.trainspec.train_spec import TrainSpec  # noqa: E402

SHAPE = ModelShape(
    vocab_size=2048,
    hidden_size=256,
    intermediate_size=704,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
)
COMMON: dict[str, Any] = {
    "model": SHAPE.model_dump(),
    "sequence_length": 512,
    "micro_batch_size": 8,
    "lr": 1e-3,
    "warmup_steps": 5,
    "log_every": 1,
    "strategy": "fsdp",
    "compile": False,
    "activation_checkpointing": False,
    "deterministic": False,
}
ADAPTERS: dict[str, Any] = {"lora": {"r": 8}}


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    changes: dict[str, Any]
    limit: float = 0.02
    """Largest difference between a loss and that of the baseline."""
    baseline: str = "fp32"
    """The setting whose losses are the right ones; its own name for a baseline."""


SETTINGS = {
    "fp32": Setting({"precision": "fp32"}),
    "bf16": Setting({"precision": "bf16"}),
    "fp16": Setting({"precision": "fp16"}),
    "bf16-true": Setting({"precision": "bf16-true"}, limit=0.1),
    "fp8": Setting({"precision": "fp8"}, limit=0.05),
    "fp8 by row": Setting({"precision": "fp8", "fp8_recipe": "rowwise"}, limit=0.05),
    "fp8 compiled": Setting({"precision": "fp8", "compile": True}, limit=0.05),
    "compiled": Setting({"precision": "bf16", "compile": True}),
    "chunked loss": Setting({"precision": "bf16", "loss_chunk": 128}),
    "compiled, chunked loss": Setting({"precision": "bf16", "compile": True, "loss_chunk": 128}),
    "recomputation": Setting({"precision": "bf16", "activation_checkpointing": True}),
    "cheap recomputation, compiled": Setting(
        {"precision": "bf16", "activation_checkpointing": True, "recompute": "cheap", "compile": True}
    ),
    "activation offload": Setting({"precision": "bf16", "activation_checkpointing": True, "activation_offload": True}),
    "CPU offload": Setting({"precision": "bf16", "cpu_offload": True}),
    "accumulation": Setting({"precision": "bf16", "micro_batch_size": 2, "gradient_accumulation_steps": 4}),
    "ddp": Setting({"precision": "bf16", "strategy": "ddp"}),
    "one process": Setting({"precision": "bf16", "strategy": "none"}),
    "documents, fp32": Setting({"precision": "fp32", "packing": "documents"}, baseline="documents, fp32"),
    "documents": Setting({"precision": "bf16", "packing": "documents"}, baseline="documents, fp32"),
    "documents, compiled": Setting({"precision": "bf16", "packing": "documents", "compile": True}, baseline="documents, fp32"),
    "LoRA, fp32": Setting(ADAPTERS | {"precision": "fp32"}, baseline="LoRA, fp32"),
    "LoRA": Setting(ADAPTERS | {"precision": "bf16"}, baseline="LoRA, fp32"),
    "LoRA, compiled": Setting(ADAPTERS | {"precision": "bf16", "compile": True}, baseline="LoRA, fp32"),
    "QLoRA": Setting({"lora": {"r": 8, "quantize": "nf4"}, "precision": "bf16"}, limit=0.1, baseline="LoRA, fp32"),
}


def run_setting(setting: Setting, data: str, steps: int) -> list[float] | str:
    """Return the loss of each step, or the end of the output of a run that failed."""
    fields = COMMON | {"data": data, "max_steps": steps} | setting.changes
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.jsonl"
        spec = TrainSpec.model_validate(fields | {"metrics_file": str(file)})
        try:
            run_python("-m", "kfjob.trainer", *to_argv(spec), limit=150)
        except RuntimeError as error:
            return str(error)
        return [line["loss"] for line in read_steps(file)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="SETTING", help=f"default: all ({', '.join(SETTINGS)})")
    parser.add_argument("--jobs", type=int, default=8, help="processes at once, default: %(default)s")
    parser.add_argument("--steps", type=int, default=40, help="default: %(default)s")
    options = parser.parse_args()
    if unknown := set(options.names) - SETTINGS.keys():
        parser.error(f"unknown settings: {', '.join(sorted(unknown))}")
    names = [name for name in SETTINGS if not options.names or name in options.names]
    names += sorted({SETTINGS[name].baseline for name in names} - set(names))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        subprocess.run([sys.executable, "-m", "kfjob.trainer.data.tiny_text", folder], check=True, cwd=ROOT)
        runs = {name: pool.submit(run_setting, SETTINGS[name], folder, options.steps) for name in names}
        losses = {name: run.result() for name, run in runs.items()}
    failed = [name for name in names if not print_row(name, losses)]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def print_row(name: str, losses: dict[str, list[float] | str]) -> bool:
    """Print the row of a setting; return whether its losses are as near to its baseline's as they must be."""
    setting = SETTINGS[name]
    own, base = losses[name], losses[setting.baseline]
    if isinstance(own, str) or isinstance(base, str):
        print(f"{name:<32} FAILED\n{own if isinstance(own, str) else 'its baseline failed'}")
        return False
    distance = max(abs(one - other) for one, other in zip(own, base, strict=True))
    is_near = distance <= setting.limit
    print(f"{name:<32} {own[0]:.4f} → {own[-1]:.4f}  at most {distance:.4f} from {setting.baseline} (limit {setting.limit})")
    return is_near


if __name__ == "__main__":
    main()
