"""The processes of one launch, as a file in its folder that the submitter writes and the supervisor reads; and their signs.

All decisions are made in it. So the supervisor needs neither pydantic nor the plan, and starts as fast as a bare interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, json

from kfjob.backends import folder
from kfjob.base.file_access import open_private
from kfjob.base.parsing import decode_json, read_document

FILE = "spec.json"
READY = b"ready\n"
"""What the supervisor writes to the submitter's pipe when it runs."""
IDENTITY = "supervisor.json"
"""File with the identity of the supervisor's process."""
REMAINING = "remaining"
"""File with a sentence about the processes that still run after SIGKILL, if any do."""
STOP = "stop"
"""Empty file that `kfjob stop` creates before it sends SIGTERM."""
STOPPED_BY_COMMAND = "`kfjob stop` ended the job"
"""Message of the final state after `kfjob stop`."""


class AgentSpec(Struct, frozen=True, kw_only=True):
    """One agent: the name of its pod, and its process."""

    pod: str
    argv: tuple[str, ...]
    env: Mapping[str, str]  # added to the supervisor's environment
    working_dir: str = ""  # "": the supervisor's
    starts_workers: bool = False  # the process itself only starts the workers, as torchrun's agent does
    mounts: Mapping[str, str] = {}  # mount path -> folder: in a mount namespace of the agent (volume_mounts)


class EtcdSpec(Struct, frozen=True, kw_only=True):
    """The job's own etcd."""

    pod: str
    argv: tuple[str, ...]
    port: int  # for clients, on loopback


class LaunchSpec(Struct, frozen=True, kw_only=True):
    """The processes of one launch, and the rules for their restarts and their end."""

    uid: str  # of the job
    agents: tuple[AgentSpec, ...]
    etcd: EtcdSpec | None
    restart_policy: str  # Never | OnFailure | Always | ExitCode
    backoff_seconds: float  # before the second restart; doubles from there
    grace_seconds: float  # between SIGTERM and SIGKILL
    failure_check: tuple[str, ...] = ()  # arguments of a Python that prints why a restart is futile; empty: nothing checks


def write(launch: Path, spec: LaunchSpec) -> None:
    """Write the spec into the launch folder."""
    with open_private(launch / folder.RUN / FILE, "wb") as file:
        file.write(json.format(json.encode(spec), indent=1))


def read(launch: Path) -> LaunchSpec:
    """Read the spec from the launch folder."""
    return decode_json(read_document(launch / folder.RUN / FILE), LaunchSpec)
