"""Install, describe and remove the guard of a namespace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from kfjob.api.target import Target
from kfjob.backends.resources import APPS
from kfjob.base.errors import KfjobError, NotFound
from kfjob.base.text import plural
from kfjob.base.units import SECOND, format_duration
from kfjob.guard.facts import read_history
from kfjob.guard.manifests import GuardOptions, make_objects
from kfjob.guard.records import COMPONENT, LEASES
from kfjob.guard.run import is_guarded
from kfjob.objects import api_objects
from kfjob.objects.api_objects import describe_object
from kfjob.objects.reading import Malformed, parse_time

SILENT_SECONDS = 60
"""Time without a renewal of its Lease after which a guard counts as ended. The clocks of two machines may differ."""


def install(target: Target, options: GuardOptions) -> list[str]:
    """Create the objects of the guard, or change them, and return their names.

    Raises:
        Forbidden, Refused, Unreachable: an object cannot be created.
    """
    objects = make_objects(options, namespace=target.namespace)
    for item in objects:
        target.cluster.apply_object(item)
    return [describe_object(item) for item in objects]


def uninstall(target: Target) -> list[str]:
    """Delete the objects of the guard, and return the names of those that existed. Jobs go on without it.

    Raises:
        Forbidden, Unreachable: an object cannot be deleted.
    """
    lease = {"apiVersion": LEASES, "kind": "Lease", "metadata": {"name": COMPONENT, "namespace": target.namespace}}
    deleted = []
    for item in [*reversed(make_objects(GuardOptions(), namespace=target.namespace)), lease]:
        with suppress(NotFound):
            target.cluster.delete_object(item)
            deleted.append(describe_object(item))
    return deleted


class GuardedJob(Struct, frozen=True):
    """A job with `recovery`."""

    name: str
    state: str  # its phase
    relaunches: int  # by the guard, since a person started the job
    note: str  # why it was relaunched last, or why it is not relaunched any more


class GuardStatus(Struct, frozen=True, kw_only=True):
    """The guard of a namespace and its jobs."""

    installed: bool
    ready: bool = False
    image: str = ""
    holder: str = ""  # the process that acts; "" for none
    renewed: str = ""  # when it said last that it acts
    jobs: tuple[GuardedJob, ...] = ()


def read_status(target: Target) -> GuardStatus:
    """Return the state of the guard; on this machine each job has its own, and only the jobs are read.

    Raises:
        Forbidden, Unreachable: its objects cannot be read.
    """
    jobs = tuple(_list_jobs(target))
    if not target.capabilities.has_api_server:
        return GuardStatus(installed=False, jobs=jobs)
    cluster = target.cluster.inventory(target.namespace)
    deployment = cluster.get_object(APPS, "deployments", COMPONENT)
    holder, renewed = _read_holder(target)
    containers = deployment["spec"]["template"]["spec"]["containers"] if deployment else []
    return GuardStatus(
        installed=deployment is not None,
        ready=bool(deployment and (deployment.get("status") or {}).get("readyReplicas")),
        image=containers[0].get("image", "") if containers else "",
        holder=holder,
        renewed=renewed,
        jobs=jobs,
    )


def _read_holder(target: Target) -> tuple[str, str]:
    """Return who holds the Lease of the guard, and when it was renewed last; "" for what it does not say."""
    lease = target.cluster.inventory(target.namespace).get_object(LEASES, "leases", COMPONENT) or {}
    spec = lease.get("spec") or {}
    return spec.get("holderIdentity") or "", spec.get("renewTime") or ""


def find_missing_guard(target: Target) -> str | None:
    """Return a notice if no guard acts in the target's namespace; None if one does, or if the user may not read that."""
    try:
        holder, renewed = _read_holder(target)
    except KfjobError:
        return None
    if holder and not _find_silence(renewed):
        return None
    return f"no guard acts in namespace `{target.namespace}`, so nobody relaunches the job; `kfjob guard install` adds one"


def _list_jobs(target: Target) -> Iterator[GuardedJob]:
    for job in target.backend.list(namespace=target.namespace):
        history = read_history(job.relaunches)
        if is_guarded(job) or history:
            note = job.guard_decision or (history[-1].reason if history else "")
            yield GuardedJob(job.name, job.phase, len(history), note)


def _describe_holder(status: GuardStatus) -> str:
    """Return which guard acts, according to its Lease."""
    if not status.holder:
        return "none yet"
    if seconds := _find_silence(status.renewed):
        return f"none: `{status.holder}` has ended, or cannot renew its Lease, for {format_duration(seconds)}"
    return status.holder


def _find_silence(renewed: str) -> int:
    """Return the seconds since a Lease was renewed; 0 if its guard may still act."""
    try:
        moment = parse_time(renewed)
    except Malformed:
        return 0
    age = (time.time_ns() - moment) // SECOND if moment else 0
    return age if age > SILENT_SECONDS else 0


def describe_status(status: GuardStatus, target: Target) -> list[str]:
    """Return the lines that `kfjob guard status` prints."""
    if not target.capabilities.has_api_server:
        lines = ["guard      a process of each job with `recovery` on this machine"]
    elif not status.installed and not status.holder:
        return [f"no guard in namespace `{target.namespace}`; `kfjob guard install --image IMAGE` installs one"]
    else:
        state = "ready" if status.ready else "not ready" if status.installed else "not installed, but one acts"
        lines = [f"guard      {state}{f' ({status.image})' if status.image else ''}", f"acts       {_describe_holder(status)}"]
        if status.installed and not status.ready:
            command = f"kubectl describe pod -l {api_objects.LABEL_APP_NAME}={COMPONENT} -n {target.namespace}"
            lines.append(f"hint: `{command}` shows why")
    lines += [
        f"{job.name}: {job.state}, {plural(job.relaunches, 'relaunch', 'relaunches')}{f'; {job.note}' if job.note else ''}"
        for job in status.jobs
    ]
    return lines if status.jobs else [*lines, "no job has `recovery` in its spec"]
