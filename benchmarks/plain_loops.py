"""Training as one writes it without kfjob: the baselines of trainer_cpu.py and trainer_gpu.py.

    python benchmarks/plain_loops.py by-hand|trainer SPEC_AS_JSON

runs one as a process of its own and prints `{"ends": [MOMENT OF EACH STEP'S END], "peak_memory": BYTES}`. `by-hand` is
`PlainLoop`, `trainer` is transformers' own Trainer, which needs accelerate. Both have a transformers model on random tokens,
fp32 weights, bf16 arithmetic by autocast, fused AdamW and clipping, and read the loss at every step.
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
    """The model of the spec as transformers makes it."""
    meta = build_meta_model(spec)
    with device:
        return type(meta)(meta.config).train()


class PlainLoop:
    """A loop by hand, for one process, DDP or FSDP2 as the spec says."""

    def __init__(self, spec: TrainSpec, device: torch.device) -> None:
        """Make model and optimiser."""
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
        """Train on one batch; the loss."""
        shape = self._spec.micro_batch_size, self._spec.sequence_length
        ids = torch.randint(self._vocabulary, shape, device=self._device)
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._spec.precision == "bf16"):
            loss = self._model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._spec.grad_clip)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss)


def by_hand(spec: TrainSpec, device: torch.device) -> list[float]:
    """When each step of a plain loop ended, of one process."""
    loop = PlainLoop(spec.model_copy(update={"strategy": "none"}), device)
    ends = []
    for _ in range(spec.max_steps or 1):
        loop.step()
        ends.append(time.monotonic())
    return ends


def by_trainer(spec: TrainSpec, device: torch.device) -> list[float]:
    """When each step of transformers' Trainer ended."""
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
    run = {"by-hand": by_hand, "trainer": by_trainer}[sys.argv[1]]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ends = run(TrainSpec.model_validate_json(sys.argv[2]), device)
    print(json.dumps({"ends": ends, "peak_memory": peak_memory()}))


if __name__ == "__main__":
    main()
