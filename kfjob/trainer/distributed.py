"""The ranks of a run: the process group, this process's rank in it, and the collectives that the loop needs."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store
from torch.distributed.device_mesh import init_device_mesh

from kfjob.base.errors import KfjobError
from kfjob.base.text import plural
from kfjob.trainer.context import Context
from kfjob.trainer.environment import check_meeting_point, read_place
from kfjob.trainer.process_identity import ProcessIdentity, boot_id, find_agent

DEFAULT_RUN_ID = "none"
"""torchrun's rendezvous id without `--rdzv-id` (torch 2.15 distributed/run.py)."""


class PeerError(KfjobError):
    """Another rank has failed and reports the error."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among the processes of the run. Collectives on CPU tensors use gloo on every device."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    device: torch.device
    run_id: str
    """torchrun's rendezvous id, the same for each restart of a launch; empty without torchrun."""
    agents: tuple[ProcessIdentity, ...] = ()
    """torchrun's agents of all ranks: they outlive a restart, and no later launch has the same ones."""
    group: dist.ProcessGroup | None = None
    """The process group of the collectives; None is the default group."""
    context: Context | None = None
    """The ranks that share samples with this one, if any do."""

    @classmethod
    def join(cls, store: Store | None = None) -> Self:
        """Join the process group of torchrun's environment variables, or of `store`; without either, a group of one.

        Raises:
            KfjobError: the environment variables contradict each other, or one is missing.
        """
        variables = read_place()
        if store is None:
            check_meeting_point(variables)
        cuda = torch.cuda.is_available()
        device = torch.device("cuda", variables["LOCAL_RANK"]) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)
        if store is None and "MASTER_ADDR" not in os.environ:
            store = HashStore()
            use_loopback()
        dist.init_process_group(
            backend="cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=store,
            rank=variables["RANK"],
            world_size=variables["WORLD_SIZE"],
            device_id=device if cuda else None,
        )
        ranks = cls(
            rank=variables["RANK"],
            world_size=variables["WORLD_SIZE"],
            local_rank=variables["LOCAL_RANK"],
            local_world_size=variables["LOCAL_WORLD_SIZE"],
            device=device,
            run_id=os.environ.get("TORCHELASTIC_RUN_ID", ""),
        )
        ranks._divide_cores()
        if not ranks.run_id:
            return ranks
        agents: list[ProcessIdentity] = ranks.all_gather(find_agent())
        ranks = replace(ranks, agents=tuple(dict.fromkeys(agents)))
        if ranks.run_id == DEFAULT_RUN_ID:  # of every launch; the agent of rank 0 is the same for all restarts of one launch
            digest = hashlib.sha256(agents[0].text().encode()).hexdigest()[:16]
            return replace(ranks, run_id=f"{DEFAULT_RUN_ID}-{digest}")
        return ranks

    def identify_launch(self, run_id: str, agents: Sequence[ProcessIdentity]) -> Literal["own", "other", "unknown"]:
        """Return whether a launch with this id and these agents is this one; every rank calls it.

        A user can give the same id to two launches. Then no agent is the same, and all agents of the earlier launch are gone.
        Where that cannot be known, this may also be a restart after which all agents are new, as those of new pods.
        """
        if not self.run_id or run_id != self.run_id:
            return "other"
        if set(agents) & set(self.agents):
            return "own"
        states: list[list[str]] = self.all_gather([agent.state for agent in agents])  # a rank knows those on its machine
        return "other" if agents and all("gone" in seen for seen in zip(*states, strict=True)) else "unknown"

    def with_own_group(self) -> Self:
        """Return the same ranks with their own gloo group, for a thread: two threads in one group mix their collectives."""
        group = cast("dist.ProcessGroup", dist.new_group(backend="gloo"))  # every rank is a member
        return replace(self, group=group)

    def share_samples(self, size: int) -> Self:
        """Return the same ranks in groups of `size` neighbours that share samples (context parallel).

        Raises:
            KfjobError: the ranks cannot be divided into such groups.
        """
        if size == 1:
            return self
        if self.world_size % size:
            title = f"{plural(self.world_size, 'rank')} cannot be divided into groups of {size} that share samples"
            raise KfjobError(title, location="context_parallel", hint="use a divisor of the number of ranks")
        mesh = init_device_mesh(self.device.type, (self.world_size // size, size), mesh_dim_names=("data", "context"))
        return replace(self, context=Context(size=size, index=self.rank % size, group=mesh.get_group("context")))

    @property
    def sharers(self) -> int:
        """The number of ranks that share each sample."""
        return self.context.size if self.context else 1

    @property
    def data_rank(self) -> int:
        """The number of this rank's group among the groups that share samples; the rank if none do."""
        return self.rank // self.sharers

    @property
    def data_world_size(self) -> int:
        """The number of groups that share samples."""
        return self.world_size // self.sharers

    def leave(self) -> None:
        """Destroy the process group."""
        dist.destroy_process_group()

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        """Return the sums of `values` over all ranks, in double precision."""
        tensor = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(tensor, group=self.group)
        return [float(value) for value in tensor]

    def all_gather(self, value: Any) -> list[Any]:
        """Return every rank's `value`, in the order of ranks. Values are pickled, so they must be small."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's `value`."""
        values = [value]
        dist.broadcast_object_list(values, group=self.group)
        return values[0]

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Fail on all ranks if the block fails on one. The lowest failing rank reports its error, and no rank waits forever.

        Raises:
            KfjobError: the block failed here, and on no lower rank.
            PeerError: the block failed on another rank.
        """
        problem = None
        try:
            yield
        except KfjobError as error:
            problem = error
        failed = [rank for rank, message in enumerate(self.all_gather(problem and str(problem))) if message]
        if problem and failed[0] == self.rank:
            raise problem
        if failed:
            raise PeerError(f"rank {failed[0]} reports an error")

    def _divide_cores(self) -> None:
        """Divide this machine's cores among its ranks, unless OMP_NUM_THREADS is set.

        torchrun divides them only among the ranks of one agent; two agents on one machine would each use all cores.
        """
        ranks_here = self.all_gather(boot_id()).count(boot_id())
        if "OMP_NUM_THREADS" not in os.environ:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            torch.set_num_threads(max(1, cores // ranks_here))


def use_loopback() -> None:
    """Make gloo use the loopback interface: it would resolve the host's own name, which fails on some machines."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if platform.system() == "Darwin" else "lo")
