"""What the submitter tells the supervisor: processes with nothing left to decide, as a file in the launch folder.

The supervisor so needs neither pydantic nor the plan, and starts in the time of a bare interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, json

from kfjob.backends import folder

ORDER = "order.json"


class AgentOrder(Struct, frozen=True, kw_only=True):
    """One agent: the pod that it stands for, and the process."""

    pod: str
    argv: tuple[str, ...]
    env: Mapping[str, str]  # added to the supervisor's own


class EtcdOrder(Struct, frozen=True, kw_only=True):
    """The job's own etcd."""

    pod: str
    argv: tuple[str, ...]
    port: int  # for clients, on loopback


class LaunchOrder(Struct, frozen=True, kw_only=True):
    """All that runs for one launch, and what happens when it ends."""

    uid: str  # of the job
    agents: tuple[AgentOrder, ...]
    etcd: EtcdOrder | None
    restart_policy: str  # Never | OnFailure | Always | ExitCode
    backoff_seconds: float  # before the second restart; doubles from there
    grace_seconds: float  # between SIGTERM and SIGKILL


def write(launch: Path, order: LaunchOrder) -> None:
    """Put the order into the launch folder."""
    (launch / folder.RUN / ORDER).write_bytes(json.format(json.encode(order), indent=1))


def read(launch: Path) -> LaunchOrder:
    """The order in the launch folder."""
    return json.decode((launch / folder.RUN / ORDER).read_bytes(), type=LaunchOrder)
