"""Measure what each strategy keeps on a rank: parameters, gradients and optimiser state of a small Llama in fp32.

    torchrun --nproc-per-node 2 memory.py            # as a job: kfjob submit memory.yaml --follow

Every row is measured after two micro-batches and a step of Adam. DeepSpeed's own copy of the parameters is counted as optimiser
state.
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import Any

import torch

from kfjob.trainer.distributed import Ranks
from kfjob.trainer.loss import token_loss
from kfjob.trainer.model import build_model
from kfjob.trainer.strategies import SingleProcess, make_strategy
from kfjob.trainspec.train_spec import TrainSpec

SHAPE = {"vocab_size": 512, "hidden_size": 320, "intermediate_size": 640, "num_hidden_layers": 2, "num_attention_heads": 4}
ROWS: dict[str, dict[str, Any]] = {
    "DP": {"strategy": "none"},  # the first device holds everything, as one process does
    "DDP": {"strategy": "ddp"},
    "ZeRO-1": {"strategy": "deepspeed", "zero_stage": 1},
    "ZeRO-2": {"strategy": "deepspeed", "zero_stage": 2},
    "ZeRO-3": {"strategy": "deepspeed", "zero_stage": 3},
    "FSDP": {"strategy": "fsdp"},
}


def measure(ranks: Ranks, fields: dict[str, Any]) -> tuple[float, float, float]:
    """Return the MB of this rank's parameters, gradients and optimiser state."""
    spec = TrainSpec(model=SHAPE, data="-", max_steps=1, precision="fp32", micro_batch_size=1, sequence_length=16, **fields)
    strategy = SingleProcess(spec, ranks) if spec.strategy == "none" else make_strategy(spec, ranks)
    model: Any = build_model(spec, strategy, ranks.device)
    optimizer: Any = strategy.make_optimizer(model)
    inputs = torch.zeros(1, spec.sequence_length, dtype=torch.long, device=ranks.device)
    gradients = 0.0
    for last in (False, True):
        strategy.accumulate(model, partial(token_loss, model, inputs, inputs), last=last)
        gradients = max(gradients, count_mb(list_gradients(model, optimizer)))
    strategy.step(model, optimizer)
    parameters = [getattr(parameter, "ds_tensor", parameter) for parameter in model.parameters()]
    parameters += [parameter for parameter in model.parameters() if hasattr(parameter, "ds_tensor")]
    adam = getattr(optimizer, "optimizer", optimizer)
    state = [value for values in adam.state.values() for value in values.values() if torch.is_tensor(value)]
    names = ("fp32_partitioned_groups_flat", "single_partition_of_fp32_groups")
    copies = next((copy for name in names if (copy := getattr(optimizer, name, None))), [])
    return count_mb(parameters), gradients, count_mb([*state, *copies])


def list_gradients(model: Any, optimizer: Any) -> list[Any]:
    """Return the gradients, also those that DeepSpeed keeps in buffers of its own."""
    averaged = [tensor for group in getattr(optimizer, "averaged_gradients", {}).values() for tensor in group or ()]
    own = [getattr(optimizer, "grad_partitions_flat_buffer", None), *averaged]
    return [tensor for tensor in (*(parameter.grad for parameter in model.parameters()), *own) if tensor is not None]


def count_mb(tensors: list[Any]) -> float:
    """Return the MB of the tensors' storages on this rank, each storage once."""
    local = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in local}.values()) / 1e6


def main() -> None:
    """Print the table."""
    ranks = Ranks.join()
    rows = {}
    for name, fields in ROWS.items():
        rows[name] = measure(ranks, fields)
        gc.collect()
    if ranks.rank == 0:
        sys.stdout.write(f"MB on each of {ranks.world_size} ranks\n")
        heading = ("parameters", "gradients", "optimiser", "sum")
        sys.stdout.write(" " * 8 + "".join(f"{word:>12}" for word in heading) + "\n")
        for name, row in rows.items():
            sys.stdout.write(f"{name:<8}" + "".join(f"{value:>12.2f}" for value in (*row, sum(row))) + "\n")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
