"""FSDP2: every unit is sharded over ranks and gathered for as long as it computes.

The five names of torch's first FSDP keep their meaning (torch 2.15 `fsdp/api.py` ShardingStrategy):

    full                    FULL_SHARD            all ranks share; a unit is freed after its forward pass, and gathered again
    shard_grad_op           SHARD_GRAD_OP         all ranks share; a unit stays whole from its forward to its backward pass
    hybrid                  HYBRID_SHARD          as full among `shard_size` ranks, whose groups hold the same
    hybrid_shard_grad_op    _HYBRID_SHARD_ZERO2   as shard_grad_op among `shard_size` ranks
    no_shard                NO_SHARD              every rank holds all
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.strategies.base import COMPUTE, Single

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class FullyShardedDataParallel(Single):
    """`fully_shard`, unit by unit."""

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Make the mesh and decide what all units have in common.

        Raises:
            KfjobError: the ranks cannot be divided into groups of `shard_size`.
        """
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

        super().__init__(spec, ranks)
        self._mesh = _mesh(spec, ranks)
        self._units: set[nn.Module] = set()
        self._head: nn.Module | None = None
        # reduce_dtype is always given: what None means has changed between versions of torch.
        self._precision = MixedPrecisionPolicy(param_dtype=COMPUTE[spec.precision], reduce_dtype=torch.float32)
        self._offload = CPUOffloadPolicy(pin_memory=ranks.device.type == "cuda") if spec.cpu_offload else OffloadPolicy()

    def plan(self, model: Any) -> None:
        """Know the head: the backward pass begins with it, so it stays whole until then."""
        self._head = model.get_output_embeddings()

    def wrap_unit(self, unit: nn.Module) -> None:
        """Shard a unit."""
        self._units.add(unit)
        self._shard(unit, reshard=self._spec.sharding in ("full", "hybrid") and unit is not self._head)

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Shard the rest, which stays whole between forward and backward: it is needed again at once."""
        self._shard(model, reshard=False)
        if self._spec.prefetch > 1:
            self._gather_ahead([module for module in model.modules() if module in self._units])
        return model

    def _shard(self, module: nn.Module, *, reshard: bool) -> None:
        from torch.distributed.fsdp import fully_shard

        sharded = fully_shard(
            module, mesh=self._mesh, reshard_after_forward=reshard, mp_policy=self._precision, offload_policy=self._offload
        )
        # The loss is divided by the tokens of all ranks, so gradients are summed; plainly, for gloo cannot scale while it sums.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)

    def _gather_ahead(self, units: list[Any]) -> None:
        """Have several units under way, in the order in which they compute; FSDP2 by itself gathers the one that comes next."""
        for number, unit in enumerate(units):
            unit.set_modules_to_forward_prefetch(units[number + 1 : number + 1 + self._spec.prefetch])
            unit.set_modules_to_backward_prefetch(units[max(0, number - self._spec.prefetch) : number][::-1])

    def autocast(self) -> AbstractContextManager[object]:
        """The mix precision policy casts."""
        return nullcontext()

    def forward_backward(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        """Exchange gradients on the last micro-batch, or on each one, which keeps them sharded in between."""
        from torch.distributed.fsdp import FSDPModule

        assert isinstance(model, FSDPModule)  # noqa: S101 -- what wrap_model returned
        model.set_requires_gradient_sync(last or self._spec.accumulate == "sharded")
        return nullcontext()


def _mesh(spec: TrainSpec, ranks: Ranks) -> DeviceMesh:
    """All ranks in a row, or (groups that hold the same, ranks that share)."""
    from torch.distributed.device_mesh import init_device_mesh

    if spec.sharding in ("full", "shard_grad_op"):
        return init_device_mesh(ranks.device.type, (ranks.world_size,), mesh_dim_names=("shard",))
    size = 1 if spec.sharding == "no_shard" else spec.shard_size or ranks.local_world_size
    if ranks.world_size % size:
        raise KfjobError(
            f"{ranks.world_size} ranks cannot be divided into groups of {size} that share a model",
            location="shard_size" if spec.shard_size else "sharding",
            hint="choose a `shard_size` that divides the number of ranks",
        )
    return init_device_mesh(ranks.device.type, (ranks.world_size // size, size), mesh_dim_names=("replicate", "shard"))
