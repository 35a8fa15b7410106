"""The processes of one launch, as a file in the launch folder that the submitter writes and the supervisor reads.

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


class AgentSpec(Struct, frozen=True, kw_only=True):
    """One agent: the name of its pod, and its process."""

    pod: str
    argv: tuple[str, ...]
    env: Mapping[str, str]  # added to the supervisor's environment
    working_dir: str = ""  # "": the supervisor's
    starts_workers: bool = False  # the process itself only starts the workers, as torchrun's agent does


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
