"""What observation needs to know of a job's spec: decided in the plan, recorded with the job as an annotation."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, json, to_builtins
from msgspec.structs import replace

from kfjob.base.parsing import ParseError, decode_json
from kfjob.joblog.progress.pattern import check_pattern

MAX_NODES = 4096
"""Nodes of a job."""


class Limits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits that stop a job: seconds, and restarts of one pod's container. None: no limit."""

    deadline: int | None = None
    pending: int | None = None
    stall: int | None = None
    crashes: int | None = None


class RecoveryLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often the guard relaunches a job that makes no progress in between."""

    retries: int = 3


class ObserveConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What logs and pods are expected to show. Every field may be unknown: a folder of logs has no spec."""

    workers: tuple[str, ...] = ()
    """Hosts of the expected pods, in the order of their node rank; with most kinds of jobs they are the names of the pods."""

    master: bool = False
    """Whether the first host is a Master, which has a name of its own."""

    rendezvous: str = ""
    """`c10d`, `etcd-v2`, `etcd` or `static`; "" is unknown (the agents' launch line then shows it)."""

    processes_per_node: int | None = None

    expected_steps: int | None = None
    """Optimiser steps of the whole run, where the spec or the arguments of its command have them."""

    expected_epochs: int | None = None
    """Epochs of the whole run, where the arguments of the command set them."""

    progress_pattern: str | None = None
    """The user's own progress line: a regular expression with named groups (see `kfjob.joblog.progress.pattern`)."""

    trainer: str = ""
    """`kfjob` for kfjob's trainer, whose lines have one format; "" for other programs, which the general reader reads."""

    unconnected: str = ""
    """The program of which every node runs a copy that knows no other node; "" if the nodes are connected, or unknown."""

    loglevel: str | None = None
    """`LOGLEVEL` of the agents as the spec sets it; None is unknown."""

    installer: str = ""
    """The command that installs packages for a local job, such as `/venv/bin/python -m pip install`; "" is unknown."""

    limits: Limits = Limits()
    """Limits that `wait`, `watch`, `submit --follow` and the guard enforce."""

    recovery: RecoveryLimits | None = None
    """What the guard may do when the job fails; None: it leaves the job alone."""

    frees_survivors: bool = False
    """Whether pods that still run after a failure of the job are deleted, once their logs are archived."""

    stall_after: int = 600
    """Seconds without a progress line after which a running job counts as stalled."""


class NamePods(Protocol):
    """Names the pods of one job by node rank."""

    def __call__(self, nodes: int, /, *, master: bool) -> tuple[str, ...]:
        """Return the names of the pods, the Master's first."""


def encode(config: ObserveConfig) -> str:
    """Return the configuration as compact JSON, with the number of the workers instead of their names."""
    fields: dict[str, object] = to_builtins(config)
    workers = fields.pop("workers", ())
    return json.encode({"nodes": len(config.workers)} | fields if workers else fields).decode()


def decode(text: str, *, name_pods: NamePods) -> ObserveConfig | None:
    """Return what `encode` wrote for a job, also in another version of kfjob; None if the text is something else.

    Whoever may change the job may change its annotation, so an impossible number of pods or pattern is something else too.
    """
    try:
        nodes = decode_json(text, _Record).nodes
        config = decode_json(text, ObserveConfig)
    except ParseError:
        return None
    if not 0 <= nodes <= MAX_NODES or (config.progress_pattern and check_pattern(config.progress_pattern)):
        return None
    return replace(config, workers=name_pods(nodes, master=config.master) if nodes else ())


class _Record(Struct):
    nodes: int = 0
