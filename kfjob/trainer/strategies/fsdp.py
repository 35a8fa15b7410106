"""FSDP2: every unit is sharded over the ranks, and gathered only while it computes.

The five names of torch's first FSDP keep their meaning (torch 2.15 `fsdp/api.py` ShardingStrategy):

    full                    FULL_SHARD            all ranks; a unit is freed after its forward pass and gathered again
    shard_grad_op           SHARD_GRAD_OP         all ranks; a unit stays gathered from its forward to its backward pass
    hybrid                  HYBRID_SHARD          like full, in groups of `shard_size` ranks; the groups are replicas
    hybrid_shard_grad_op    _HYBRID_SHARD_ZERO2   like shard_grad_op, in groups of `shard_size` ranks
    no_shard                NO_SHARD              every rank holds the full model
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Shard

from kfjob.base.errors import KfjobError
from kfjob.trainer.checkpoint import CheckpointState
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.experts import is_experts_parameter
from kfjob.trainer.float8 import Float8ModelState, compute_scales, gather_in_float8
from kfjob.trainer.metrics import log
from kfjob.trainer.nf4 import list_whole
from kfjob.trainer.strategies.base import COMPUTE_DTYPES, Accept, SingleProcess, accept_always
from kfjob.trainspec.train_spec import TrainSpec

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class FullyShardedDataParallel(SingleProcess):
    """Applies `fully_shard` to one unit after the other."""

    shards_units = True

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Create the device mesh, and the policies that all units share.

        Raises:
            KfjobError: the ranks cannot be divided into groups of `shard_size`.
        """
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

        super().__init__(spec, ranks)
        self._mesh = _make_mesh(spec, ranks)
        # The policy casts, so autocast does not. reduce_dtype is always set: None means different things in versions of torch.
        self._precision = MixedPrecisionPolicy(param_dtype=COMPUTE_DTYPES[spec.precision], reduce_dtype=torch.float32)
        self._offload = CPUOffloadPolicy(pin_memory=ranks.device.type == "cuda") if spec.cpu_offload else OffloadPolicy()

    def wrap(self, model: Any, units: Iterable[nn.Module]) -> nn.Module:
        """Shard one unit after the other.

        The backward pass begins with the head, so it stays gathered until then, and so does the rest of the model.
        """
        reshards, head, wrapped, whole = self._spec.sharding in ("full", "hybrid"), model.get_output_embeddings(), set(), set()
        for unit in units:
            gather_in_float8(unit, self._spec)
            undivided = list_whole(unit, self._mesh.size(-1))
            self._shard(unit, ignored=undivided, reshard=reshards and unit is not head and unit is not model)
            wrapped.add(unit)
            whole |= undivided
        if self._spec.prefetch > 1:
            self._set_prefetch([module for module in model.modules() if module in wrapped - {model}])
        if whole and (ranks := self._mesh.size(-1)) > 1:
            log.info("%d weights in 4 bits are whole on every rank: %d ranks do not divide them", len(whole), ranks)
        root: nn.Module = model
        return root

    def _shard(self, module: nn.Module, *, ignored: set[nn.Parameter], reshard: bool) -> None:
        from torch.distributed.fsdp import fully_shard

        sharded = fully_shard(
            module,
            mesh=self._mesh,
            reshard_after_forward=reshard,
            shard_placement_fn=self._place_shards,
            mp_policy=self._precision,
            offload_policy=self._offload,
            ignored_params=ignored,
        )
        # The loss is divided by the tokens of all ranks, so gradients are summed. gloo cannot scale while it sums.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)

    def _place_shards(self, parameter: nn.Parameter) -> Shard | None:
        """Shard the experts of a layer by rows, if the ranks do not divide their number; by default some ranks had no shard."""
        ranks = self._mesh.size(-1)
        if is_experts_parameter(parameter) and parameter.shape[0] % ranks:
            return next((Shard(dim) for dim in (1, 2) if parameter.shape[dim] % ranks == 0), None)
        return None

    def _set_prefetch(self, units: list[Any]) -> None:
        """Prefetch several units in the order in which they compute; by default FSDP2 prefetches one."""
        for number, unit in enumerate(units):
            unit.set_modules_to_forward_prefetch(units[number + 1 : number + 1 + self._spec.prefetch])
            unit.set_modules_to_backward_prefetch(units[max(0, number - self._spec.prefetch) : number][::-1])

    def step(self, model: nn.Module, optimizer: torch.optim.Optimizer, accept: Accept = accept_always) -> Tensor:
        """Clip and update; the weights that are gathered in fp8 get new scales."""
        norm = super().step(model, optimizer, accept)
        compute_scales(model, self._spec)
        return norm

    def checkpoint_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> CheckpointState:
        """Return both by torch's own names."""
        return Float8ModelState(model, optimizer, self._spec)

    def _synchronization(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        """Reduce gradients to shards on each micro-batch, or on the last one; replicas exchange shards on the last one only."""
        fsdp: Any = model
        fsdp.set_requires_gradient_sync(last or self._spec.accumulate == "sharded")
        fsdp.set_requires_all_reduce(last)
        return nullcontext()


def _make_mesh(spec: TrainSpec, ranks: Ranks) -> DeviceMesh:
    """Return a mesh of all ranks, or of (replica groups, ranks of a group)."""
    from torch.distributed.device_mesh import init_device_mesh

    if spec.sharding in ("full", "shard_grad_op"):
        return init_device_mesh(ranks.device.type, (ranks.world_size,), mesh_dim_names=("shard",))
    size = 1 if spec.sharding == "no_shard" else spec.shard_size or ranks.local_world_size
    if ranks.world_size % size:
        raise KfjobError(
            f"{ranks.world_size} ranks cannot be divided into groups of {size}",
            location="shard_size" if spec.shard_size else "sharding",
            hint="use a `shard_size` that divides the number of ranks",
        )
    return init_device_mesh(ranks.device.type, (ranks.world_size // size, size), mesh_dim_names=("replicate", "shard"))
