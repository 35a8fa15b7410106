"""The ranks of a run: the process group, who this process is in it, and the few small collectives that the loop needs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store

from kfjob.errors import KfjobError


class FailedElsewhere(KfjobError):
    """Another rank has the same trouble and reports it."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among all processes of the run. Collectives on CPU tensors go through gloo, whatever the device."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    device: torch.device
    run_id: str
    """torchrun's rendezvous id: the same for every restart of one launch, empty without torchrun."""
    group: dist.ProcessGroup | None = None
    """What the collectives go through; None is the default group."""

    @classmethod
    def join(cls, store: Store | None = None) -> Self:
        """Join the process group that torchrun describes in the environment, or that meets at `store`; alone without either."""
        here = {name: int(os.environ.get(name, default)) for name, default in _ENVIRONMENT.items()}
        cuda = torch.cuda.is_available()
        device = torch.device("cuda", here["LOCAL_RANK"]) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)
        if store is None and "MASTER_ADDR" not in os.environ:
            store = HashStore()
            # gloo would look up this host's name, which not every machine can
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if platform.system() == "Darwin" else "lo")
        dist.init_process_group(
            backend="cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=store,
            rank=here["RANK"],
            world_size=here["WORLD_SIZE"],
            device_id=device if cuda else None,
        )
        ranks = cls(
            rank=here["RANK"],
            world_size=here["WORLD_SIZE"],
            local_rank=here["LOCAL_RANK"],
            local_world_size=here["LOCAL_WORLD_SIZE"],
            device=device,
            run_id=os.environ.get("TORCHELASTIC_RUN_ID", ""),
        )
        ranks._share_cores()
        return ranks

    def apart(self) -> Self:
        """The same ranks in a gloo group of their own, for a thread: collectives of two threads in one group would mix."""
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)  # noqa: S101 -- every rank is in it
        return replace(self, group=group)

    def leave(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums of `values` over all ranks, in double precision."""
        tensor = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(tensor, group=self.group)
        return [float(value) for value in tensor]

    def gather(self, value: Any) -> list[Any]:
        """Every rank's `value`, in the order of ranks. For small things: they are pickled."""
        everyone: list[Any] = [None] * self.world_size
        dist.all_gather_object(everyone, value, group=self.group)
        return everyone

    def share(self, value: Any) -> Any:
        """Rank 0's `value`."""
        box = [value]
        dist.broadcast_object_list(box, group=self.group)
        return box[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Fail on all ranks when the block fails on one, so that the lowest rank with a message says it and no rank waits.

        Raises:
            KfjobError: the block's own, on the lowest rank that has one.
            FailedElsewhere: on all other ranks.
        """
        problem = None
        try:
            yield
        except KfjobError as error:
            problem = error
        troubled = [rank for rank, message in enumerate(self.gather(problem and str(problem))) if message]
        if problem and troubled[0] == self.rank:
            raise problem
        if troubled:
            raise FailedElsewhere(f"rank {troubled[0]} reports an error")

    def _share_cores(self) -> None:
        """Divide this machine's cores among the ranks on it, unless OMP_NUM_THREADS says how many.

        torchrun does so only among the ranks of one agent; two agents on one machine would each take all cores.
        """
        neighbours = self.gather(_machine()).count(_machine())
        if "OMP_NUM_THREADS" not in os.environ:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            torch.set_num_threads(max(1, cores // neighbours))


_ENVIRONMENT = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}


def _machine() -> str:
    """The same for all containers of a machine where the kernel tells (Linux), else the host's name."""
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    return boot_id.read_text() if boot_id.exists() else platform.node()
