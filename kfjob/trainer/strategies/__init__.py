"""How the ranks divide the work: each strategy says how a module is wrapped once its weights exist, and how gradients meet."""

from __future__ import annotations

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.strategies.base import Single, Strategy
from kfjob.trainer.strategies.copies import DataParallel, DistributedDataParallel
from kfjob.trainer.strategies.fsdp import FullyShardedDataParallel
from kfjob.trainer.strategies.zero import DeepSpeed

__all__ = ["Single", "Strategy", "make_strategy", "named"]


def make_strategy(spec: TrainSpec, ranks: Ranks) -> Strategy:
    """The strategy that the spec names.

    Raises:
        KfjobError: `none` with more than one process.
    """
    if spec.strategy == "none":
        if ranks.world_size > 1:
            raise KfjobError(f"strategy `none` is a single process, here are {ranks.world_size}", hint="use `fsdp` or `ddp`")
        return Single(spec, ranks)
    if spec.strategy == "deepspeed":
        return DeepSpeed(spec, ranks)
    if spec.strategy == "dp":
        return DataParallel(spec, ranks)
    return DistributedDataParallel(spec, ranks) if spec.strategy == "ddp" else FullyShardedDataParallel(spec, ranks)


def named(spec: TrainSpec) -> str:
    """The strategy in a word or two, for the run's first line."""
    return {"fsdp": f"fsdp {spec.sharding}", "deepspeed": f"deepspeed {spec.zero_stage}"}.get(spec.strategy, spec.strategy)
