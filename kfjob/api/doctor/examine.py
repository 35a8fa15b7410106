"""All checks, in the order in which one stands on the other."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kfjob.api import kubeconfig
from kfjob.api.doctor import aws, cluster, machine
from kfjob.api.doctor.findings import Finding, of_error, run
from kfjob.api.settings import Settings
from kfjob.api.target import make_target
from kfjob.backends.base import Inventory
from kfjob.errors import KfjobError, UsageError

NAMES = ("api server", *machine.CHECKS, *cluster.CHECKS, *aws.CHECKS)
"""What can be asked for by name."""


def examine(settings: Settings, *, only: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Look at this machine and, where a kubeconfig leads to one, at the cluster; findings as they are made.

    Raises:
        UsageError: `only` names a check that there is not.
    """
    if unknown := only.difference(NAMES):
        raise UsageError(f"there is no check `{min(unknown)}`", hint=f"there are {', '.join(NAMES)}")
    yield from run(machine.CHECKS, machine.Machine(settings=settings, environ=os.environ), only=only)
    if settings.backend != "local":
        yield from _of_the_cluster(settings, only)
    yield from run(aws.CHECKS, object(), only=only)


def _of_the_cluster(settings: Settings, only: frozenset[str]) -> Iterator[Finding]:
    if only.isdisjoint(("api server", *cluster.CHECKS)) if only else False:
        return
    try:
        if not kubeconfig.find_current_context(settings.context):
            return  # the machine's own check has said so
        there = inventory(settings)
        reached = list(cluster.reachable(there))
    except KfjobError as err:
        yield of_error("api server", err)
        return
    if not only or "api server" in only:
        yield from reached
    yield from run(cluster.CHECKS, there, only=only)


def inventory(settings: Settings) -> Inventory:
    """The cluster of the settings, seen from the namespace of their jobs.

    Raises:
        Unreachable, UsageError, Forbidden: none is configured, or as it is configured it cannot be asked.
    """
    target = make_target(settings, "kubernetes")
    return target.cluster.inventory(target.namespace)
