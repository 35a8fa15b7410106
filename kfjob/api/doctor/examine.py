"""Run the checks of this machine, the cluster and AWS."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kfjob.api import kubeconfig
from kfjob.api.doctor import aws, cluster, machine
from kfjob.api.doctor.findings import Finding, error_finding, run_checks
from kfjob.api.settings import Settings
from kfjob.api.target import make_target
from kfjob.backends.base import Inventory
from kfjob.errors import KfjobError, UsageError

API_SERVER = "api server"
NAMES = (API_SERVER, *machine.CHECKS, *cluster.CHECKS, *aws.CHECKS)
"""Names of all checks."""


def examine(settings: Settings, *, only: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Yield findings about this machine, about the cluster if the kubeconfig has one, and about AWS.

    Raises:
        UsageError: `only` has the name of an unknown check.
    """
    if unknown := only.difference(NAMES):
        raise UsageError(f"unknown check `{min(unknown)}`", hint=f"the checks are {', '.join(f'`{name}`' for name in NAMES)}")
    yield from run_checks(machine.CHECKS, machine.Machine(settings=settings, environ=os.environ), only=only)
    if settings.backend != "local":
        yield from _examine_cluster(settings, only)
    yield from run_checks(aws.CHECKS, None, only=only)


def _examine_cluster(settings: Settings, only: frozenset[str]) -> Iterator[Finding]:
    if only and only.isdisjoint((API_SERVER, *cluster.CHECKS)):
        return
    try:
        if not kubeconfig.find_current_context(settings.context):
            return  # the check `kubeconfig` reports it
        inventory = open_inventory(settings)
        finding = cluster.check_api_server(inventory, API_SERVER)
    except KfjobError as err:
        yield error_finding(API_SERVER, err)
        return
    if not only or API_SERVER in only:
        yield finding
    yield from run_checks(cluster.CHECKS, inventory, only=only)


def open_inventory(settings: Settings) -> Inventory:
    """Return the inventory of the settings' cluster and namespace.

    Raises:
        Unreachable, UsageError, Forbidden: no cluster is configured, or the client cannot be set up.
    """
    target = make_target(settings, "kubernetes")
    return target.cluster.inventory(target.namespace)
