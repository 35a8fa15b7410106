"""Strategies: how the ranks divide the work, how a module is wrapped, and how gradients are reduced."""

from __future__ import annotations

from kfjob.base.errors import KfjobError
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.float8 import check_float8
from kfjob.trainer.strategies.base import SingleProcess, Strategy, accept_always
from kfjob.trainer.strategies.fsdp import FullyShardedDataParallel
from kfjob.trainer.strategies.replicas import DataParallel, DistributedDataParallel
from kfjob.trainer.strategies.zero import DeepSpeed, log_communication
from kfjob.trainspec.train_spec import TrainSpec

__all__ = ["SingleProcess", "Strategy", "accept_always", "describe_strategy", "log_communication", "make_strategy"]


def make_strategy(spec: TrainSpec, ranks: Ranks) -> Strategy:
    """Return the strategy that the spec names.

    Raises:
        KfjobError: `none` or `dp` with more than one process, or a setting that the strategy or the device does not support.
    """
    check_float8(spec, ranks.device)
    if spec.strategy == "none":
        if ranks.world_size > 1:
            raise KfjobError(f"strategy `none` needs one process, this run has {ranks.world_size}", hint="use `fsdp` or `ddp`")
        return SingleProcess(spec, ranks)
    if spec.strategy == "deepspeed":
        return DeepSpeed(spec, ranks)
    if spec.strategy == "dp":
        return DataParallel(spec, ranks)
    return DistributedDataParallel(spec, ranks) if spec.strategy == "ddp" else FullyShardedDataParallel(spec, ranks)


def describe_strategy(spec: TrainSpec) -> str:
    """Return the strategy's name and variant, for the run's first line."""
    name = {"fsdp": f"fsdp {spec.sharding}", "deepspeed": f"deepspeed {spec.zero_stage}"}.get(spec.strategy, spec.strategy)
    return f"{name} with context parallel {spec.context_parallel}" if spec.context_parallel > 1 else name
