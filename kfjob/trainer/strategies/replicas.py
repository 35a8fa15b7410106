"""Replicas: every rank, or every GPU of one process, holds a copy of the model (DDP and DataParallel)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from kfjob.base.errors import KfjobError
from kfjob.trainer.checkpoint import CheckpointState
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.metrics import log
from kfjob.trainer.nf4 import is_quantized
from kfjob.trainer.strategies.base import SingleProcess
from kfjob.trainspec.train_spec import TrainSpec


class DistributedDataParallel(SingleProcess):
    """DDP: averages gradients during the backward pass."""

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Undo the average, because the loss is divided by the tokens of all ranks."""
        super().__init__(spec, ranks)
        self._gradient_scale = float(ranks.world_size)

    def wrap(self, model: Any, units: Iterable[nn.Module]) -> nn.Module:
        """Wrap the whole model; buffers and quantised weights, which are the same on every rank, are not synchronised."""
        for _ in units:
            pass
        ddp: Any = nn.parallel.DistributedDataParallel
        ignored = [name for name, _ in model.named_buffers()]
        ignored += [name for name, parameter in model.named_parameters() if is_quantized(parameter)]
        ddp._set_params_and_buffers_to_ignore_for_model(model, ignored)  # noqa: SLF001 -- no public way from 2.11 to 2.15
        devices = [self._device] if self._device.type == "cuda" else None
        return self._with_autocast(ddp(model, device_ids=devices, gradient_as_bucket_view=True))

    def _synchronization(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        """Synchronise gradients only on the last micro-batch."""
        ddp: Any = model
        context: AbstractContextManager[object] = nullcontext() if last else ddp.no_sync()
        return context


_CHANGED_LAYERS = ("activation_checkpointing", "activation_offload", "compile")
"""Settings that replace the `forward` of a layer object; a replica would copy it, with the weights of the original."""


class DataParallel(SingleProcess):
    """torch's DataParallel, as a baseline: one process splits micro-batches among its GPUs and copies the model each time."""

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Use all GPUs of this process.

        Raises:
            KfjobError: the run has more than one process, or a setting that works on one GPU only.
        """
        super().__init__(spec, ranks)
        if ranks.world_size > 1:
            raise KfjobError(f"strategy `dp` needs one process, this run has {ranks.world_size}", hint="use `ddp`")
        self._devices = list(range(torch.cuda.device_count()))
        changed_layers = [name for name in _CHANGED_LAYERS if getattr(spec, name)]
        if len(self._devices) > 1 and changed_layers:
            title = f"strategy `dp` on {len(self._devices)} GPUs does not support `{changed_layers[0]}`"
            cause = "its replicas would run the layers of the first GPU"
            raise KfjobError(title, location=changed_layers[0], cause=cause, hint="use `ddp`, or let the job see one GPU")
        if not self._devices:
            log.info("DataParallel finds no GPU and computes like strategy none")

    def wrap(self, model: Any, units: Iterable[nn.Module]) -> nn.Module:
        """Wrap the whole model."""
        for _ in units:
            pass
        return self._with_autocast(nn.DataParallel(model, device_ids=self._devices))

    def checkpoint_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> CheckpointState:
        """Return both by the names of the unwrapped model."""
        data_parallel: Any = model
        return super().checkpoint_state(data_parallel.module, optimizer)
