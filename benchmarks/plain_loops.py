"""Training loops without kfjob: the baselines of trainer_cpu.py and trainer_gpu.py.

    python benchmarks/plain_loops.py by-hand|trainer SPEC_AS_JSON

runs one loop and prints `{"ends": [END TIME OF EACH STEP], "peak_memory": BYTES}`. `by-hand` is `PlainLoop`. `trainer` is
transformers' Trainer, which needs accelerate. Both use a transformers model on random tokens, fp32 weights, bf16 autocast,
fused AdamW and clipping, and read the loss at every step.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from kfjob.spec.train import TrainSpec
from kfjob.trainer.metrics import peak_memory
from kfjob.trainer.model import build_meta_model


def fresh_model(spec: TrainSpec, device: torch.device) -> Any:
    """Return a new transformers model for the spec."""
    meta = build_meta_model(spec)
    with device:
        return type(meta)(meta.config).train()


class PlainLoop:
    """A plain training loop for one process, DDP or FSDP2, as in the spec."""

    def __init__(self, spec: TrainSpec, device: torch.device) -> None:
        """Create model and optimiser."""
        self._spec, self._device = spec, device
        model = fresh_model(spec, device)
        self._vocabulary = model.config.vocab_size
        if spec.strategy == "ddp":
            model = DistributedDataParallel(model)
        elif spec.strategy == "fsdp":
            for unit in (*model.model.layers, model):
                fully_shard(unit)
        self._model: Any = torch.compile(model) if spec.compile else model
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=spec.lr, fused=True)

    def step(self) -> float:
        """Train on one batch and return the loss."""
        shape = self._spec.micro_batch_size, self._spec.sequence_length
        ids = torch.randint(self._vocabulary, shape, device=self._device)
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._spec.precision == "bf16"):
            loss = self._model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._spec.grad_clip)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss)


def run_plain_loop(spec: TrainSpec, device: torch.device) -> list[float]:
    """Run a plain loop in one process; return the end time of each step."""
    loop = PlainLoop(spec.model_copy(update={"strategy": "none"}), device)
    ends = []
    for _ in range(spec.max_steps or 1):
        loop.step()
        ends.append(time.monotonic())
    return ends


def run_trainer(spec: TrainSpec, device: torch.device) -> list[float]:
    """Run transformers' Trainer; return the end time of each step."""
    import transformers

    ends = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if device.type == "cuda":
                torch.cuda.synchronize()
            ends.append(time.monotonic())

    model = fresh_model(spec, device)
    steps = spec.max_steps or 1
    samples = torch.randint(model.config.vocab_size, (steps * spec.micro_batch_size, spec.sequence_length))
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=spec.micro_batch_size,
            bf16=True,
            optim="adamw_torch_fused",
            torch_compile=spec.compile,
            use_cpu=device.type == "cpu",
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        data: Any = [{"input_ids": sample, "labels": sample} for sample in samples]
        transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Clock()]).train()
    return ends


def main() -> None:
    run = {"by-hand": run_plain_loop, "trainer": run_trainer}[sys.argv[1]]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ends = run(TrainSpec.model_validate_json(sys.argv[2]), device)
    print(json.dumps({"ends": ends, "peak_memory": peak_memory()}))


if __name__ == "__main__":
    main()
