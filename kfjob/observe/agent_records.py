"""What an agent's log tells: rendezvous results, launch settings, and what happened to its workers."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

INTEGERS = ("restart_count", "master_port", "group_rank", "group_world_size")
LISTS = ("local_ranks", "role_ranks", "global_ranks", "role_world_sizes", "global_world_sizes")
FIELDS = ("restart_count", "master_addr", "master_port", "group_rank", "group_world_size", *LISTS)
"""The fields of a block in the order torch prints them (torch/distributed/elastic/agent/server/api.py `_rendezvous`, the same
from 2.0 to 2.15; 2.9 and later print `event_log_handler` after them)."""


class Source(StrEnum):
    """Which of the agent's lines a rendezvous result was read from."""

    BLOCK = "rendezvous block"
    NODE = "node joined"  # dynamic_rendezvous.py, c10d and etcd-v2, with TORCH_LOGS=torch.distributed.elastic
    ETCD = "etcd join"  # etcd_rendezvous.py, printed at every log level
    EVENT = "console event"  # --event-log-handler console, 2.9 and later


class RendezvousResult(Struct, frozen=True, kw_only=True):
    """What one agent says it was given in one round. Agents of one round can disagree about `master_addr`, not about ranks.

    `restart_count` is this agent's own count: it must not be used to order rounds.
    """

    source: Source = Source.BLOCK
    role: str = ""
    restart_count: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    group_rank: int | None = None
    group_world_size: int | None = None
    local_ranks: tuple[int, ...] = ()
    role_ranks: tuple[int, ...] = ()
    global_ranks: tuple[int, ...] = ()
    role_world_sizes: tuple[int, ...] = ()
    global_world_sizes: tuple[int, ...] = ()
    line: int = 0  # where it begins in the container's log, the first line read being 0
    quote: str = ""  # the line that tells the group rank, as it was printed
    time: int | None = None
    yearless: int | None = None  # glog's own time, which has no year; only where `time` is not known

    @property
    def complete(self) -> bool:
        """Whether every field was read: a block can be cut by log rotation."""
        return all(getattr(self, name) not in (None, ()) for name in FIELDS)


class AgentEventKind(StrEnum):
    """What the agent reports of itself and its workers."""

    RENDEZVOUS = "rendezvous"  # waits for its peers
    JOINED = "joined"
    STARTED = "started"  # starts its workers
    WORKER_FAILED = "worker failed"
    RESTARTING = "restarting"  # a worker failed, attempts are left
    MEMBERSHIP = "membership"  # restarts because nodes want to join
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    SIGNAL_RECEIVED = "signal"  # got a signal and shuts down
    SIGNAL_SENT = "signalled"  # sent a signal to a worker
    CLOSED = "closed"  # the rendezvous is over
    FAILED = "failed"  # gave up


class AgentEvent(Struct, frozen=True, kw_only=True):
    """One happening, with the numbers its line holds."""

    kind: AgentEventKind
    text: str
    line: int = 0
    time: int | None = None
    yearless: int | None = None
    attempts_left: int | None = None
    attempts: int | None = None
    nodes: int | None = None  # that wait to join
    local_rank: int | None = None
    exit_code: int | None = None
    signal: str = ""


class LaunchConfig(Struct, frozen=True, kw_only=True):
    """What the agent was started with (torch/distributed/launcher/api.py `launch_agent`), as far as observation needs it."""

    line: int = 0
    min_nodes: int | None = None
    max_nodes: int | None = None
    nproc_per_node: int | None = None
    max_restarts: int | None = None
    run_id: str = ""
    rdzv_backend: str = ""
    rdzv_endpoint: str = ""
    node_rank: int | None = None  # static rendezvous only: `rdzv_configs: {'rank': 1, …}`


AgentRecord = RendezvousResult | AgentEvent | LaunchConfig
