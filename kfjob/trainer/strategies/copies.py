"""Every rank, or every GPU of one process, holds a copy of the model: DDP and DataParallel."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.checkpoint import State
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.metrics import log
from kfjob.trainer.strategies.base import Single


class DistributedDataParallel(Single):
    """DDP: gradients are averaged while they are made."""

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Undo the average, since the loss is divided by the tokens of all ranks."""
        super().__init__(spec, ranks)
        self._scale = float(ranks.world_size)

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Wrap the whole model; buffers are functions of the configuration and need no exchange."""
        ddp: Any = nn.parallel.DistributedDataParallel
        ddp._set_params_and_buffers_to_ignore_for_model(model, [name for name, _ in model.named_buffers()])  # noqa: SLF001 -- no public way from 2.11 to 2.15
        devices = [self._device] if self._device.type == "cuda" else None
        wrapped: nn.Module = ddp(model, device_ids=devices, gradient_as_bucket_view=True)
        return wrapped

    def forward_backward(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        """Hold the exchange back until the last micro-batch."""
        assert isinstance(model, nn.parallel.DistributedDataParallel)  # noqa: S101 -- what wrap_model returned
        return nullcontext() if last else model.no_sync()


class DataParallel(Single):
    """torch's DataParallel, the baseline: one process deals micro-batches out to its GPUs, and copies the model each time."""

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Take all GPUs of this process.

        Raises:
            KfjobError: more than one process.
        """
        super().__init__(spec, ranks)
        if ranks.world_size > 1:
            raise KfjobError(f"strategy `dp` is a single process, here are {ranks.world_size}", hint="use `ddp`")
        self._devices = list(range(torch.cuda.device_count()))
        if not self._devices:
            log.info("DataParallel has no GPU to deal out to: it computes as strategy none")

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Wrap the whole model."""
        return nn.DataParallel(model, device_ids=self._devices)

    def held(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
        """By the names that the model has by itself."""
        assert isinstance(model, nn.DataParallel)  # noqa: S101 -- what wrap_model returned
        return super().held(model.module, optimizer)
