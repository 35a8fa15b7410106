"""Records in the log of a torch elastic agent: rendezvous results, launch settings and events."""

from __future__ import annotations

from enum import StrEnum
from signal import Signals

from msgspec import Struct

INTEGERS = ("restart_count", "master_port", "group_rank", "group_world_size")
LISTS = ("local_ranks", "role_ranks", "global_ranks", "role_world_sizes", "global_world_sizes")
FIELDS = ("restart_count", "master_addr", "master_port", "group_rank", "group_world_size", *LISTS)
"""Fields of a rendezvous block in the order in which torch prints them (torch/distributed/elastic/agent/server/api.py
`_rendezvous`, the same from 2.0 to 2.15; 2.9 and later print `event_log_handler` after them)."""


class ResultSource(StrEnum):
    """The kind of agent line that a rendezvous result comes from."""

    BLOCK = "rendezvous block"
    NODE = "node joined"  # dynamic_rendezvous.py, c10d and etcd-v2, with TORCH_LOGS=torch.distributed.elastic
    ETCD = "etcd join"  # etcd_rendezvous.py, printed at every log level
    EVENT = "console event"  # --event-log-handler console, 2.9 and later


class RendezvousResult(Struct, frozen=True, kw_only=True):
    """The ranks and the master address that one agent got in one round.

    Agents of one round can disagree about `master_addr`, but not about ranks. `restart_count` is the agent's own count, so it
    does not order rounds.
    """

    source: ResultSource = ResultSource.BLOCK
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
    line: int = 0  # first line of the block, counted from 0 within the container's log
    quote: str = ""  # the line with the group rank, as printed
    time: int | None = None
    yearless: int | None = None  # a glog time, which has no year; set only if `time` is unknown

    @property
    def complete(self) -> bool:
        """Whether every field is known; log rotation can cut a block."""
        return all(getattr(self, name) not in (None, ()) for name in FIELDS)


class AgentEventKind(StrEnum):
    """What happened to an agent or its workers."""

    RENDEZVOUS = "rendezvous"  # waits for the other agents
    STARTED = "started"  # starts its workers
    WORKER_FAILED = "worker failed"
    RESTARTING = "restarting"  # a worker failed and restarts are left
    MEMBERSHIP = "membership"  # restarts because nodes wait to join
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    SIGNAL_RECEIVED = "signal"  # shuts down after a signal
    SIGNAL_SENT = "signalled"  # sent a signal to a worker
    CLOSED = "closed"  # the rendezvous is closed
    FAILED = "failed"  # gave up


def describe_exit_code(code: int) -> str:
    """Return `exit code 1`, or `SIGKILL` for -9: a process that a signal ended has the signal's number, negative."""
    return f"exit code {code}" if code >= 0 else name_signal(str(-code))


def name_signal(text: str) -> str:
    """Return `SIGTERM` for `15`, `SIGTERM` and `Signals.SIGTERM`; an unknown number as `signal 99`."""
    name = text.rpartition(".")[2]
    if not name.isdecimal():
        return name
    try:
        return Signals(int(name)).name
    except ValueError:
        return f"signal {name}"


def _count_pods(count: int) -> str:
    """Return `a pod waits` or `2 pods wait`: of a pod that is new, or that comes back after a restart."""
    return "a pod waits" if count == 1 else f"{count} pods wait"


class AgentEvent(Struct, frozen=True, kw_only=True):
    """One event, with the numbers in its line."""

    kind: AgentEventKind
    text: str
    line: int = 0
    time: int | None = None
    yearless: int | None = None
    attempts_left: int | None = None
    attempts: int | None = None
    nodes: int | None = None  # nodes that wait to join
    local_rank: int | None = None
    exit_code: int | None = None
    signal: str = ""

    def __str__(self) -> str:
        """Return what happened in plain words, without the kind; the agent's own text for what is rare."""
        match self.kind:
            case AgentEventKind.WORKER_FAILED if self.exit_code is not None:
                text = f"local rank {self.local_rank}, {describe_exit_code(self.exit_code)}"
            case AgentEventKind.RESTARTING if self.attempts is not None and self.attempts_left is not None:
                text = (
                    f"the training processes begin again, restart {self.attempts - self.attempts_left + 1} of {self.attempts}"
                )
            case AgentEventKind.MEMBERSHIP if self.nodes is not None:
                text = f"{_count_pods(self.nodes)} to join, so the training processes begin again"
            case AgentEventKind.SUCCEEDED:
                text = "all training processes of this pod"
            case AgentEventKind.SIGNAL_RECEIVED:
                text = f"torchrun received {name_signal(self.signal)} and stops the training processes"
            case AgentEventKind.FAILED:
                name = self.text.partition(":")[0].rpartition(".")[2]
                text = f"torchrun gave up ({name})" if name else "torchrun gave up"
            case _:
                text = self.text
        return text


class LaunchConfig(Struct, frozen=True, kw_only=True):
    """The settings that an agent started with (torch/distributed/launcher/api.py `launch_agent`)."""

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
