"""Training loops without kfjob: the baselines of trainer_cpu.py and trainer_gpu.py.

    python -m benchmarks.plain_loops by-hand|by-layer|trainer SPEC_AS_JSON

runs one loop and prints `{"ends": [END TIME OF EACH STEP], "peak_memory": BYTES}`. `by-hand` is `PlainLoop`; with `compile` it
compiles the whole model, and `by-layer` compiles each layer. `trainer` is transformers' Trainer, which needs accelerate. All
use a transformers model on random tokens, fp32 weights, bf16 autocast, fused AdamW and clipping, and read the loss at every
`log_every`-th step. With `packing: documents` the model gets the tokens' positions in their documents, from which transformers
makes a mask. With `precision: fp8` torchao converts the linear layers of `PlainLoop`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from kfjob.trainer.data.synthetic import Synthetic
from kfjob.trainer.metrics import peak_memory
from kfjob.trainer.model import build_meta_model
from kfjob.trainspec.train_spec import TrainSpec, resolve_micro_batch_size


def fresh_model(spec: TrainSpec, device: torch.device) -> Any:
    """Return a new transformers model for the spec."""
    meta = build_meta_model(spec)
    with device:
        return type(meta)(meta.config).train()


def convert_layers(model: Any, spec: TrainSpec) -> None:
    """Make the linear layers of the decoder compute in fp8, as torchao's page shows it."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = replace(Float8LinearConfig.from_recipe_name(spec.fp8_recipe), emulate=spec.fp8_emulate)
    convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: name != "lm_head")


class PlainLoop:
    """A plain training loop for one process, DDP or FSDP2, as in the spec."""

    def __init__(self, spec: TrainSpec, device: torch.device, *, by_layer: bool = False) -> None:
        """Create model and optimiser. `by_layer` compiles the layers instead of the model, if the spec compiles."""
        self._spec, self._device = spec, device
        model = fresh_model(spec, device)
        self._vocabulary = model.config.vocab_size
        self._samples = 0
        if spec.precision == "fp8":
            convert_layers(model, spec)
        if spec.strategy == "ddp":
            model = DistributedDataParallel(model)
        elif spec.strategy == "fsdp":
            for unit in (*model.model.layers, model):
                fully_shard(unit)
        if spec.compile and by_layer:
            for layer in model.model.layers:
                layer.compile()
        self._model: Any = torch.compile(model) if spec.compile and not by_layer else model
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=spec.lr, fused=True)

    def step(self) -> torch.Tensor:
        """Train on one batch; return the loss without waiting for the device."""
        shape = resolve_micro_batch_size(self._spec), self._spec.sequence_length
        ids = torch.randint(self._vocabulary, shape, device=self._device)
        positions = {"position_ids": self._positions()} if self._spec.packing == "documents" else {}
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._spec.precision in ("bf16", "fp8")):
            loss: torch.Tensor = self._model(input_ids=ids, labels=ids, use_cache=False, **positions).loss
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._spec.grad_clip)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss.detach()

    def _positions(self) -> torch.Tensor:
        """Return the positions in documents of the same lengths as those of the trainer's synthetic data."""
        spec, batch = self._spec, resolve_micro_batch_size(self._spec)
        samples = Synthetic(length=spec.sequence_length, vocab_size=1, seed=spec.seed, documents=True)
        self._samples += batch
        positions = np.stack([samples[number][2] for number in range(self._samples - batch, self._samples)])
        return torch.from_numpy(positions).to(self._device)


def run_plain_loop(spec: TrainSpec, device: torch.device, *, by_layer: bool = False) -> list[float]:
    """Run a plain loop in one process; return the end time of each step whose loss is read."""
    loop = PlainLoop(spec.model_copy(update={"strategy": "none"}), device, by_layer=by_layer)
    ends = []
    for number in range(1, (spec.max_steps or 1) + 1):
        loss = loop.step()
        if number % spec.log_every == 0:
            loss.item()
            ends.append(time.monotonic())
    return ends


def run_trainer(spec: TrainSpec, device: torch.device) -> list[float]:
    """Run transformers' Trainer; return the end time of each step."""
    import transformers

    ends = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 -- the Trainer's signature
            if state.global_step % spec.log_every == 0:
                if device.type == "cuda":
                    torch.cuda.synchronize()
                ends.append(time.monotonic())

    model = fresh_model(spec, device)
    steps = spec.max_steps or 1
    samples = torch.randint(model.config.vocab_size, (steps * resolve_micro_batch_size(spec), spec.sequence_length))
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=resolve_micro_batch_size(spec),
            bf16=True,
            optim="adamw_torch_fused",
            torch_compile=bool(spec.compile),
            use_cpu=device.type == "cpu",
            logging_steps=spec.log_every,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        data: Any = [{"input_ids": sample, "labels": sample} for sample in samples]
        transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Clock()]).train()
    return ends


LOOPS: dict[str, Callable[[TrainSpec, torch.device], list[float]]] = {
    "by-hand": run_plain_loop,
    "by-layer": partial(run_plain_loop, by_layer=True),
    "trainer": run_trainer,
}


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ends = LOOPS[sys.argv[1]](TrainSpec.model_validate_json(sys.argv[2]), device)
    print(json.dumps({"ends": ends, "peak_memory": peak_memory()}))


if __name__ == "__main__":
    main()
