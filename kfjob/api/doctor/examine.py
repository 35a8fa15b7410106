"""Run the checks of this machine, the cluster and AWS."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kfjob.api.doctor import aws, cluster, machine
from kfjob.api.doctor.findings import Finding, error_finding, fail, ok, run_checks
from kfjob.api.settings import Settings
from kfjob.api.target import make_target
from kfjob.backends import kubeconfig
from kfjob.backends.base import Inventory
from kfjob.base.errors import KfjobError, UsageError
from kfjob.kinds.base import JobKind
from kfjob.kinds.registry import KINDS, find_kind, find_target_kind

API_SERVER = "api server"


def list_names() -> tuple[str, ...]:
    """Return the names of all checks."""
    return (API_SERVER, *machine.CHECKS, *cluster.CHECKS, *aws.CHECKS)


def examine(settings: Settings, *, only: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Yield findings about this machine, about the cluster if the kubeconfig has one, and about AWS.

    A check that `only` names has a finding in any case.

    Raises:
        UsageError: `only` has the name of an unknown check.
    """
    names = list_names()
    if unknown := only.difference(names):
        raise UsageError(f"unknown check `{min(unknown)}`", hint=f"the checks are {', '.join(f'`{name}`' for name in names)}")
    silent = set(only)
    for finding in _run_all(settings, only):
        silent.discard(finding.name)
        if finding.name == API_SERVER and finding.verdict == "fail":
            silent.difference_update(cluster.CHECKS)  # this finding explains why they did not run
        yield finding
    yield from (_explain_silence(settings, name) for name in names if name in silent)


def _explain_silence(settings: Settings, name: str) -> Finding:
    """Return the finding of a named check that found nothing to check."""
    if name not in (API_SERVER, *cluster.CHECKS):
        return ok(name, "nothing to check on this machine")
    if settings.backend == "local":
        return fail(name, "not checked: jobs run on this machine", "`--backend kubernetes` checks the cluster")
    if not kubeconfig.find_current_context(settings.context):
        return fail(name, "not checked: the kubeconfig has no context", "aws eks update-kubeconfig --name CLUSTER")
    return ok(name, "nothing to check in this cluster")


def _run_all(settings: Settings, only: frozenset[str]) -> Iterator[Finding]:
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
    first, *others = _list_kinds(inventory, settings)
    yield from run_checks(cluster.CHECKS, cluster.Cluster(inventory, first), only=only)
    for kind in others:
        yield from run_checks(cluster.CHECKS_OF_KIND, cluster.Cluster(inventory, kind), only=only)
    if not only or "crd" in only:
        for kind in KINDS.values():
            if kind not in (first, *others):
                yield ok("crd", f"no {kind.name}: {kind.controller} is not installed; `{kind.install_command}` installs it")


def _list_kinds(inventory: Inventory, settings: Settings) -> list[JobKind]:
    """Return the kinds of jobs to check: that of the settings, or else the default, and all that the cluster offers."""
    served = [kind for kind in KINDS.values() if kind.resource in inventory.list_resources(kind.api_version)]
    if wanted := find_target_kind(settings.target or ""):
        return [KINDS[wanted], *(kind for kind in served if kind.name != wanted)]
    return served or [find_kind("")]


def open_inventory(settings: Settings) -> Inventory:
    """Return the inventory of the settings' cluster and namespace.

    Raises:
        Unreachable, UsageError, Forbidden: no cluster is configured, or the client cannot be set up.
    """
    target = make_target(settings, "kubernetes")
    return target.cluster.inventory(target.namespace)
