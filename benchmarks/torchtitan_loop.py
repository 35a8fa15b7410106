"""torchtitan on the model and the batch of a spec: a baseline of trainer_gpu.py, written for torchtitan 0.3.

    python -m benchmarks.torchtitan_loop SPEC_AS_JSON

prints `{"ends": [END TIME OF EACH LOGGED STEP], "peak_memory": BYTES}`. It runs torchtitan's own Trainer on one GPU with its
own Llama, FSDP2, fp32 weights, bf16 computation and clipping, on random tokens. What the spec does not say is torchtitan's
default: CUDA graphs, flex attention and its implementation of AdamW. `main` sets the variables that torchrun would set.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import CompileConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import SelectiveAC
from torchtitan.models.llama3 import llama3_configs, model_registry
from torchtitan.trainer import Trainer

from kfjob.spec.models import ModelShape, count_parameters
from kfjob.spec.train import TrainSpec, get_shape, resolve_micro_batch_size

ENDS: list[float] = []
"""The end time of each logged step."""
PEAKS: list[float] = []
"""The peak memory before each log, in bytes; torchtitan resets the counter there."""


class NoTokenizer(BaseTokenizer):
    """Stands in for a tokenizer, which random tokens do not need."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """No settings."""

    def __init__(self, config: Config, *, tokenizer_path: str) -> None:  # noqa: ARG002 -- torchtitan's signature
        """Ignore the path."""
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> list[int]:
        """Encode nothing."""
        return []

    def decode(self, *_: Any, **__: Any) -> str:
        """Decode nothing."""
        return ""

    def get_vocab_size(self) -> int:
        """Return 0."""
        return 0


class RandomTokens(BaseDataLoader):
    """Endless batches of random tokens, each sample one document."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """The size of the vocabulary."""

        vocab_size: int = 0

    def __init__(self, config: Config, *, seq_len: int, local_batch_size: int, **_: Any) -> None:
        """Take the batch's shape from torchtitan."""
        self._vocabulary, self._shape = config.vocab_size, (local_batch_size, seq_len + 1)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Yield inputs with their positions, and targets."""
        positions = torch.arange(self._shape[1] - 1).repeat(self._shape[0], 1)
        while True:
            tokens = torch.randint(self._vocabulary, self._shape)
            yield {"input": tokens[:, :-1], "positions": positions}, tokens[:, 1:].contiguous()

    def state_dict(self) -> dict[str, Any]:
        """Return no state."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore nothing."""


class Clock(MetricsProcessor):
    """torchtitan's metrics, which also records the end of each interval of logging."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):
        """Those of torchtitan."""

    def log(self, step: int, *arguments: Any, **options: Any) -> None:
        """Log the step. torchtitan also logs the first step, which ends no interval."""
        PEAKS.append(float(torch.cuda.max_memory_allocated()))
        super().log(step, *arguments, **options)
        if step % self.config.log_freq == 0:
            ENDS.append(time.monotonic())


def find_flavor(shape: ModelShape) -> tuple[str, int]:
    """Return torchtitan's Llama whose first layers have the shape, and its number of layers.

    Raises:
        ValueError: torchtitan has none.
    """
    for name in llama3_configs:
        model = model_registry(name).model
        model.layers = model.layers[: shape.num_hidden_layers]
        with torch.device("meta"):
            built = model.build()
        attention = model.layers[0].attention
        heads = attention.n_heads, attention.n_kv_heads or attention.n_heads
        if (
            sum(parameter.numel() for parameter in built.parameters()) == count_parameters(shape)
            and (model.dim, model.vocab_size) == (shape.hidden_size, shape.vocab_size)
            and heads == (shape.num_attention_heads, shape.num_key_value_heads or shape.num_attention_heads)
        ):
            return name, shape.num_hidden_layers
    raise ValueError(f"torchtitan has no Llama of this shape: {shape}")


def make_config(spec: TrainSpec, folder: str) -> Trainer.Config:
    """Return torchtitan's configuration for the spec; it writes to `folder`.

    Raises:
        ValueError: torchtitan has no model of this shape, or a setting of the spec has no counterpart here.
    """
    shape = get_shape(spec)
    if shape is None or spec.precision != "bf16" or spec.packing == "documents" or spec.cpu_offload:
        raise ValueError("only a Llama in bf16, on samples of one document, without offload, is compared with torchtitan")
    flavor, layers = find_flavor(shape)
    model = model_registry(flavor)
    model.model.layers = model.model.layers[:layers]
    loss = CrossEntropyLoss.Config(global_vocab_size=shape.vocab_size)
    return Trainer.Config(
        model_spec=model,
        loss=ChunkedLossWrapper.Config(loss_fn=loss) if spec.loss_chunk else loss,
        dump_folder=folder,
        tokenizer=NoTokenizer.Config(),
        dataloader=RandomTokens.Config(vocab_size=shape.vocab_size),
        optimizer=default_adamw(lr=spec.lr),
        training=TrainingConfig(
            local_batch_size=resolve_micro_batch_size(spec),
            seq_len=spec.sequence_length,
            steps=spec.max_steps or 1,
            max_norm=spec.grad_clip,
        ),
        metrics=Clock.Config(log_freq=spec.log_every),
        activation_checkpoint=SelectiveAC.Config() if spec.activation_checkpointing else None,
        compile=CompileConfig(enable=bool(spec.compile)),
    )


def main() -> None:
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(TrainSpec.model_validate_json(sys.argv[1]), folder)
        if not torch.cuda.is_available():
            raise SystemExit("torchtitan needs a GPU")
        trainer = config.build()
        trainer.train()
        trainer.close()
    print(json.dumps({"ends": ENDS, "peak_memory": max(PEAKS)}))


if __name__ == "__main__":
    main()
