"""A model that trains in milliseconds, and the moment in which the test looks at the job."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

FEATURES = 4
HOLD_AT = 5  # the line of the first life at which rank 0 waits while the file `hold` exists
_first: dict[str, Any] = {}
_lines = 0


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1))


def make_data(samples: int = 64) -> TensorDataset:
    """Return inputs [samples, FEATURES] and their sums [samples, 1]."""
    inputs = torch.randn(samples, FEATURES, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def draw_batch(step: int, size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the batch of this rank and step: inputs [size, FEATURES] and their sums [size, 1]."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    inputs = torch.randn(size, FEATURES, generator=torch.Generator().manual_seed(100 * step + rank))
    return inputs, inputs.sum(1, keepdim=True)


def make_parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model of all ranks and its optimizer."""
    model = DistributedDataParallel(make_model())
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Do one step, and return its loss."""
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def save(state: dict[str, Any], path: str | Path) -> None:
    """Write a checkpoint that is whole or absent, also where two nodes write the same file."""
    part = Path(f"{path}.{os.getpid()}")
    torch.save(state, part)
    part.replace(path)


def show(rank: int | None = None, **printed: float) -> None:
    """Write what rank 0 has just printed to `printed.json`, and wait there once while the file `hold` exists."""
    global _lines  # noqa: PLW0603
    time.sleep(0.05)
    if (dist.get_rank() if rank is None else rank) != 0:
        return
    _lines += 1
    _first.update({} if _first else printed)
    held = _lines == HOLD_AT and Path("hold").exists()
    note = {"pod": os.environ["HOSTNAME"], "pid": os.getpid(), "first": _first, "last": printed, "held": held}
    part = Path("printed.json.part")
    part.write_text(json.dumps(note))
    part.replace("printed.json")
    while held and Path("hold").exists():
        time.sleep(0.05)
