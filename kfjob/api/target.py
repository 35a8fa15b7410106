"""Where a command acts: settings, the backend they lead to, and the namespace."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from kfjob.api import context
from kfjob.api.settings import Settings
from kfjob.backends import folder
from kfjob.backends.base import Backend, ClusterBackend
from kfjob.common_types import Notify
from kfjob.errors import Forbidden, NotFound, Unreachable, UsageError
from kfjob.events import JobSnapshot

if TYPE_CHECKING:
    from kfjob.plan import BackendName


@dataclass(frozen=True)
class Target:
    """One backend and one namespace."""

    settings: Settings
    name: BackendName
    namespace: str

    @cached_property
    def backend(self) -> Backend:
        """Opened when it is first needed."""
        return context.open_backend(self.settings, self.name)

    @property
    def kubeconfig(self) -> str:
        """The name of the kubeconfig's context that is in force; "" where there is none."""
        found = context.find_kubeconfig_here(self.settings.context)
        return found.context if found else ""

    def get(self, job: str) -> JobSnapshot:
        """The job as it is now.

        Raises:
            NotFound: there is none, with the words for what to do next.
        """
        return self.backend.get(job, namespace=self.namespace)

    def look(self, job: str) -> JobSnapshot:
        """The same, only to be read: to who may see pods and no jobs, as the pods tell it.

        Raises:
            NotFound, Forbidden: as `get`.
        """
        try:
            return self.get(job)
        except Forbidden:
            if self.name != "kubernetes" or (told := self._told_by_pods(job)) is None:
                raise
            return told

    def _told_by_pods(self, job: str) -> JobSnapshot | None:
        with suppress(Forbidden):  # to see jobs is the right to ask for
            return cluster_of(self).get_by_pods(job, namespace=self.namespace)
        return None


def find_target(settings: Settings, *, notify: Notify) -> Target:
    """The place that the settings lead to."""
    name = context.choose_backend(settings, notify=notify)
    return Target(settings, name, context.namespace(settings, name))


def cluster_of(target: Target) -> ClusterBackend:
    """The cluster, for what only a cluster can do.

    Raises:
        UsageError: jobs run on this machine.
    """
    if target.name != "kubernetes":
        raise UsageError("this needs a cluster, and jobs run on this machine", hint="use `--backend kubernetes`")
    return cast("ClusterBackend", target.backend)  # by its name


def find_job_target(job: str, settings: Settings, *, notify: Notify) -> Target:
    """Where an existing job is: where the settings lead to, and if nobody named a backend also this machine.

    So a job that was started with `--backend local` is found again without saying it twice.
    """
    if settings.backend or settings.context:
        return find_target(settings, notify=notify)
    here = find_target(replace(settings, backend="local"), notify=notify)
    if not context.find_kubeconfig_here():
        return here
    there = find_target(replace(settings, backend="kubernetes"), notify=notify)
    if not folder.entries(here.settings.state / "local" / here.namespace / job):
        return there  # without loading the local backend
    try:
        here.get(job)
    except NotFound:
        return there
    try:
        there.get(job)
    except (NotFound, Unreachable):
        notify(f"`{job}` runs on this machine, not on the cluster")
        return here
    notify(f"a job `{job}` is on this machine too; this is the one on the cluster (`--backend local` for the other)")
    return there
