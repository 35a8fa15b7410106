"""torchtitan on the model and the batch of a spec: a baseline of trainer_gpu.py, written for torchtitan 0.2.

    python -m benchmarks.torchtitan_loop SPEC_AS_JSON

prints `{"ends": [END TIME OF EACH LOGGED STEP], "peak_memory": BYTES}`. It runs torchtitan's own Trainer on one GPU with its
own Llama, layers and loss compiled, fp32 weights, bf16 computation and clipping, on random tokens. What the spec does not say
is torchtitan's default. torchtitan 0.2.2 is the newest version that runs with torch 2.11; its loss has no chunks.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.config import JobConfig
from torchtitan.models.llama3 import Transformer, TransformerModelArgs, get_train_spec
from torchtitan.protocols.train_spec import register_train_spec
from torchtitan.train import Trainer

from kfjob.trainspec.model_shapes import ModelShape, count_parameters
from kfjob.trainspec.train_spec import TrainSpec, get_shape, resolve_micro_batch_size

NAME = "benchmark"
"""The name of the model and of its only flavor."""


class TiedTransformer(Transformer):
    """torchtitan's Llama with one matrix for the embedding and the head."""

    def init_weights(self, buffer_device: torch.device | None = None) -> None:
        """Tie the head, which torchtitan has allocated by now, and set the weights."""
        self.output.weight = self.tok_embeddings.weight
        super().init_weights(buffer_device)


class RandomTokens(BaseDataLoader):
    """Endless batches of random tokens."""

    def __init__(self, job_config: JobConfig, vocab_size: int) -> None:
        """Take the batch's shape from the configuration."""
        training = job_config.training
        self._vocabulary, self._shape = vocab_size, (training.local_batch_size, training.seq_len + 1)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Yield inputs and targets."""
        while True:
            tokens = torch.randint(self._vocabulary, self._shape)
            yield {"input": tokens[:, :-1]}, tokens[:, 1:].contiguous()

    def state_dict(self) -> dict[str, Any]:
        """Return no state."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore nothing."""


class Clock(MetricsProcessor):
    """torchtitan's metrics, which also records the end of each interval of logging."""

    def __init__(self, job_config: JobConfig, parallel_dims: Any, _: Any) -> None:
        """Begin with no times."""
        super().__init__(job_config, parallel_dims)
        self.ends: list[float] = []
        self.peaks: list[float] = []
        """In bytes, before each log; torchtitan resets the counter there."""

    def log(self, step: int, *arguments: Any, **options: Any) -> None:
        """Log the step. torchtitan also logs the first step, which ends no interval."""
        self.peaks.append(float(torch.cuda.max_memory_allocated()))
        super().log(step, *arguments, **options)
        if step % self.job_config.metrics.log_freq == 0:
            self.ends.append(time.monotonic())


def make_model(shape: ModelShape) -> tuple[type[Transformer], TransformerModelArgs]:
    """Return torchtitan's Llama of this shape.

    Raises:
        ValueError: torchtitan has none.
    """
    model_class = TiedTransformer if shape.tie_word_embeddings else Transformer
    arguments = TransformerModelArgs(
        dim=shape.hidden_size,
        n_layers=shape.num_hidden_layers,
        n_heads=shape.num_attention_heads,
        n_kv_heads=shape.num_key_value_heads,
        vocab_size=shape.vocab_size,
        multiple_of=shape.intermediate_size,  # torchtitan rounds 8/3 of `dim` up to a multiple
    )
    with torch.device("meta"):
        model = model_class(arguments)
    tied = model.output.weight.numel() if shape.tie_word_embeddings else 0
    if sum(parameter.numel() for parameter in model.parameters()) - tied != count_parameters(shape):
        raise ValueError(f"torchtitan has no Llama of this shape: {shape}")
    return model_class, arguments


def make_config(spec: TrainSpec, folder: str) -> JobConfig:
    """Return torchtitan's configuration for the spec, whose model it registers; it writes to `folder`.

    Raises:
        ValueError: torchtitan has no model of this shape, or a setting of the spec has no counterpart here.
    """
    shape = get_shape(spec)
    if shape is None or spec.precision != "bf16" or spec.packing == "documents" or spec.cpu_offload:
        raise ValueError("only a Llama in bf16, on samples of one document, without offload, is compared with torchtitan")
    model_class, arguments = make_model(shape)
    register_train_spec(
        NAME,
        replace(
            get_train_spec(),
            model_cls=model_class,
            model_args={NAME: arguments},
            build_dataloader_fn=lambda job_config, **_: RandomTokens(job_config, shape.vocab_size),
            build_tokenizer_fn=None,
            build_metrics_processor_fn=Clock,
            state_dict_adapter=None,
        ),
    )
    config = JobConfig()
    config.job.dump_folder = folder
    config.model.name = config.model.flavor = NAME
    config.optimizer.lr = spec.lr
    config.training.local_batch_size = resolve_micro_batch_size(spec)
    config.training.seq_len = spec.sequence_length
    config.training.steps = spec.max_steps or 1
    config.training.max_norm = spec.grad_clip
    config.metrics.log_freq = spec.log_every
    config.activation_checkpoint.mode = "selective" if spec.activation_checkpointing else "none"
    config.activation_checkpoint.selective_ac_option = "op"
    config.compile.enable = bool(spec.compile)
    return config


def set_rank() -> None:
    """Set the variables that torchrun would set for one process."""
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def main() -> None:
    set_rank()
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(TrainSpec.model_validate_json(sys.argv[1]), folder)
        if not torch.cuda.is_available():
            raise SystemExit("torchtitan needs a GPU")
        trainer = Trainer(config)
        trainer.train()
        clock: Any = trainer.metrics_processor
        trainer.close()
    print(json.dumps({"ends": clock.ends, "peak_memory": max(clock.peaks)}))


if __name__ == "__main__":
    main()
