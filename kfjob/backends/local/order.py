"""What the submitter tells the supervisor: processes with nothing left to decide, as a file in the launch folder.

The supervisor so needs neither pydantic nor the plan, and starts in the time of a bare interpreter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kfjob.backends import folder

ORDER = "order.json"


@dataclass(frozen=True, kw_only=True)
class AgentOrder:
    """One agent: the pod that it stands for, and the process."""

    pod: str
    argv: tuple[str, ...]
    env: Mapping[str, str]  # added to the supervisor's own


@dataclass(frozen=True, kw_only=True)
class EtcdOrder:
    """The job's own etcd."""

    pod: str
    argv: tuple[str, ...]
    port: int  # for clients, on loopback


@dataclass(frozen=True, kw_only=True)
class LaunchOrder:
    """All that runs for one launch, and what happens when it ends."""

    uid: str  # of the job
    agents: tuple[AgentOrder, ...]
    etcd: EtcdOrder | None
    restart_policy: str  # Never | OnFailure | Always | ExitCode
    backoff_seconds: float  # before the second restart; doubles from there
    grace_seconds: float  # between SIGTERM and SIGKILL


def write(launch: Path, order: LaunchOrder) -> None:
    """Put the order into the launch folder."""
    (launch / folder.RUN / ORDER).write_text(json.dumps(asdict(order), indent=1), encoding="utf-8")


def read(launch: Path) -> LaunchOrder:
    """The order in the launch folder."""
    data: dict[str, Any] = json.loads((launch / folder.RUN / ORDER).read_text(encoding="utf-8"))
    agents = tuple(AgentOrder(**agent | {"argv": tuple(agent["argv"])}) for agent in data.pop("agents"))
    etcd = data.pop("etcd")
    return LaunchOrder(**data, agents=agents, etcd=EtcdOrder(**etcd | {"argv": tuple(etcd["argv"])}) if etcd else None)
