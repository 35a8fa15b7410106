"""How the ranks divide the work: each strategy says how a module is wrapped once its weights exist, and how gradients meet."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import nn

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.distributed import Ranks


class Strategy(Protocol):
    """What the loop asks of a strategy."""

    loss_scale: float
    """Factor on the loss, already divided by the tokens of all ranks, that makes the reduced gradient the sum over ranks."""

    def wrap_unit(self, unit: nn.Module) -> None:
        """Take charge of a part of the model whose weights have just been made."""

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Take charge of what is left and return what the loop calls."""

    def forward_backward(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        """Around one micro-batch; gradients are exchanged on the last one of a step only."""

    def autocast(self) -> AbstractContextManager[object]:
        """Around a forward pass."""


class Single:
    """One process, nothing exchanged."""

    loss_scale = 1.0

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Compute in bf16 by autocast where the spec asks for it."""
        self._device, self._bf16 = ranks.device, spec.precision == "bf16"

    def wrap_unit(self, unit: nn.Module) -> None:
        """Leave it."""

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Leave it."""
        return model

    def forward_backward(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:  # noqa: ARG002 -- the protocol's
        """Nothing to do."""
        return nullcontext()

    def autocast(self) -> AbstractContextManager[object]:
        """Matrix products in bf16."""
        return torch.autocast(self._device.type, dtype=torch.bfloat16) if self._bf16 else nullcontext()


class DataParallel(Single):
    """DDP: every rank holds everything, gradients are averaged."""

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Undo the average, since the loss is divided by the tokens of all ranks."""
        super().__init__(spec, ranks)
        self.loss_scale = float(ranks.world_size)

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


class FullyShardedDataParallel:
    """FSDP2: every unit is sharded over the ranks and gathered for as long as it computes."""

    loss_scale = 1.0

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Make the mesh: all ranks shard, or with `hybrid` those of one node, and nodes replicate."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy

        if spec.sharding == "hybrid":
            nodes = ranks.world_size // ranks.local_world_size
            shape, names = (nodes, ranks.local_world_size), ("replicate", "shard")
            self._mesh = init_device_mesh(ranks.device.type, shape, mesh_dim_names=names)
        else:
            self._mesh = init_device_mesh(ranks.device.type, (ranks.world_size,), mesh_dim_names=("shard",))
        self._reshard = spec.sharding != "shard_grad_op"
        # reduce_dtype is always given: what None means has changed between versions of torch.
        compute = torch.bfloat16 if spec.precision == "bf16" else torch.float32
        self._precision = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32)

    def wrap_unit(self, unit: nn.Module) -> None:
        """Shard a unit."""
        self._shard(unit, reshard=self._reshard)

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Shard the rest, which stays whole between forward and backward: it is needed again at once."""
        self._shard(model, reshard=False)
        return model

    def _shard(self, module: nn.Module, *, reshard: bool) -> None:
        from torch.distributed.fsdp import fully_shard

        sharded = fully_shard(module, mesh=self._mesh, reshard_after_forward=reshard, mp_policy=self._precision)
        # The loss is divided by the tokens of all ranks, so gradients are summed; plainly, for gloo cannot scale while it sums.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)

    def forward_backward(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        """Hold the exchange back until the last micro-batch."""
        from torch.distributed.fsdp import FSDPModule

        assert isinstance(model, FSDPModule)  # noqa: S101 -- what wrap_model returned
        model.set_requires_gradient_sync(last)
        return nullcontext()

    def autocast(self) -> AbstractContextManager[object]:
        """The mixed precision policy casts."""
        return nullcontext()


def make_strategy(spec: TrainSpec, ranks: Ranks) -> Strategy:
    """The strategy that the spec names.

    Raises:
        KfjobError: `none` with more than one process.
    """
    if spec.strategy == "none":
        if ranks.world_size > 1:
            raise KfjobError(f"strategy `none` is a single process, here are {ranks.world_size}", hint="use `fsdp` or `ddp`")
        return Single(spec, ranks)
    return DataParallel(spec, ranks) if spec.strategy == "ddp" else FullyShardedDataParallel(spec, ranks)
