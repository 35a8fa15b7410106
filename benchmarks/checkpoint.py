"""How long a checkpoint stops the training: a background save compared with a blocking save, in one run.

Goal: a ratio of at most 0.1, and 0.05 on a GPU, with 500 MB or more. Usage: python -m benchmarks.checkpoint [rounds] [folder]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from kfjob.trainer.checkpoint import ModelState, parameter_shapes, prepare_storage
from kfjob.trainer.checkpoint_writer import CheckpointWriter
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.model import build_model
from kfjob.trainer.storage import open_storage
from kfjob.trainer.strategies import make_strategy
from kfjob.trainspec.model_shapes import ModelShape
from kfjob.trainspec.train_spec import TrainSpec

SHAPE = ModelShape(
    vocab_size=16384,
    hidden_size=768,
    intermediate_size=2048,
    num_hidden_layers=6,
    num_attention_heads=12,
    num_key_value_heads=4,
    max_position_embeddings=128,
)
SPEC = TrainSpec(model=SHAPE, data="-", max_steps=1, sequence_length=8, strategy="fsdp", precision="fp32")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    ranks = Ranks.join()
    strategy = make_strategy(SPEC, ranks)
    model = build_model(SPEC, strategy, ranks.device)
    optimizer = strategy.make_optimizer(model)
    model(input_ids=torch.zeros(1, 8, dtype=torch.long, device=ranks.device)).logits.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        stalls: dict[bool, list[float]] = {True: [], False: []}
        commits: list[float] = []
        savers = {}
        for background in stalls:
            storage = open_storage(f"{folder}/{background}")
            prepare_storage(storage, ranks)
            savers[background] = CheckpointWriter(
                storage, ModelState(model, optimizer), ranks, keep_last=1, asynchronous=background
            )
        for step in range(rounds + 1):
            for background, saver in savers.items():
                manifest = Manifest(
                    step=step,
                    loss=None,
                    run_id="",
                    global_batch=1,
                    parameters=parameter_shapes(model),
                    data_identity={},
                    data_position={},
                    spec={},
                    torch_version=torch.__version__,
                )
                start = time.monotonic()
                saved = saver.save(manifest)
                stall = time.monotonic() - start
                saver.wait()  # otherwise the write would overlap the other measurement
                if step:  # the first save allocates memory that the later ones reuse
                    stalls[background].append(stall)
                    commits += [time.monotonic() - start] if background else []
        size = sum(path.stat().st_size for path in Path(saved.path).iterdir())
    medians = {background: statistics.median(values) for background, values in stalls.items()}
    print(f"{size / 1e6:.0f} MB on {ranks.device.type}, median of {rounds}")
    print(f"waiting        stall {medians[False]:.2f} s")
    stall, commit = medians[True], statistics.median(commits)
    print(f"in background  stall {stall:.2f} s; complete after {commit:.2f} s")
    print(
        f"in background / waiting: {stall / medians[False]:.3f} (goal: at most {0.05 if ranks.device.type == 'cuda' else 0.1})"
    )
    ranks.leave()


if __name__ == "__main__":
    main()
