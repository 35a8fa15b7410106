"""What observation needs to know of a job's spec. `api` fills it, so that nothing here reads a spec."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """What a job may take, in seconds and in restarts of a pod's container; None: as much as it likes."""

    deadline: int | None = None
    pending: int | None = None
    stall: int | None = None
    crashes: int | None = None


class ObserveConfig(Struct, frozen=True, kw_only=True):
    """The expectations that logs and pods are read against. Every field may be unknown: a folder of logs has no spec."""

    workers: tuple[str, ...] = ()
    """Names of the expected pods, in the order of their node rank."""

    rendezvous: str = ""
    """`c10d`, `etcd-v2`, `etcd`, `static`; "" when not known (the agents' own launch line tells it too)."""

    processes_per_node: int | None = None

    expected_steps: int | None = None
    """Optimiser steps of the whole run, where the spec tells them and the progress lines do not."""

    progress_pattern: str | None = None
    """The caller's own progress line: a regular expression with named groups (see `progress.custom`)."""

    trainer: str = ""
    """`kfjob` for our own trainer, or the one progress format to look for (`progress.FORMATS`); "" looks for all of them, which
    costs more a line."""

    loglevel: str | None = None
    """`LOGLEVEL` of the agents as the spec sets it; None when not known."""

    limits: Limits = Limits()
    """Over them a job is ended by whoever follows it."""

    stall_after: int = 600
    """Seconds without a progress line after which a running job counts as stalled."""
