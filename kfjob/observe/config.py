"""The facts about a job's spec that observation needs. `api` fills them in, so nothing in `observe` reads a spec."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a job, in seconds and in restarts of a container; None means no limit."""

    deadline: int | None = None
    pending: int | None = None
    stall: int | None = None
    crashes: int | None = None


class ObserveConfig(Struct, frozen=True, kw_only=True):
    """What a job is expected to do. Every field may be unknown: a folder of logs has no spec."""

    workers: tuple[str, ...] = ()
    """Names of the expected pods, in the order of their node rank."""

    rendezvous: str = ""
    """`c10d`, `etcd-v2`, `etcd` or `static`; "" if unknown (the agents' launch message names it too)."""

    processes_per_node: int | None = None

    expected_steps: int | None = None
    """Optimiser steps of the whole run, for jobs whose progress lines do not print a total."""

    progress_pattern: str | None = None
    """A regular expression with named groups for the job's own progress line (see `progress.custom_format`)."""

    trainer: str = ""
    """`kfjob` for kfjob's trainer, or the name of one format in `progress.FORMATS`; "" tries every format, which costs
    more per line."""

    loglevel: str | None = None
    """`LOGLEVEL` of the agents as the spec sets it; None if unknown."""

    limits: Limits = Limits()
    """Limits that end the job; whoever follows the job enforces them."""

    stall_after: int = 600
    """Seconds without a progress line after which a running job counts as stalled."""
