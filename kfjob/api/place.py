"""Where a command acts: settings, the backend they lead to, and the namespace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from kfjob.api import context
from kfjob.api.config import Settings
from kfjob.backends import folder
from kfjob.backends.base import Backend
from kfjob.errors import Forbidden, NotFound, Unreachable, UsageError
from kfjob.events import JobSnapshot

if TYPE_CHECKING:
    from kfjob.backends.kubernetes.backend import KubernetesBackend
    from kfjob.plan import BackendName

Notice = Callable[[str], None]


def silent(_text: str) -> None:
    """Notices are for terminals."""


@dataclass(frozen=True)
class Place:
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


def place(settings: Settings, *, notice: Notice) -> Place:
    """The place that the settings lead to."""
    name = context.choose_backend(settings, notice=notice)
    return Place(settings, name, context.namespace(settings, name))


def cluster_of(at: Place) -> KubernetesBackend:
    """The cluster, for what only a cluster can do.

    Raises:
        UsageError: jobs run on this machine.
    """
    if at.name != "kubernetes":
        raise UsageError("this needs a cluster, and jobs run on this machine", hint="use `--backend kubernetes`")
    return cast("KubernetesBackend", at.backend)  # by its name


def place_of(job: str, settings: Settings, *, notice: Notice) -> Place:
    """Where an existing job is: where the settings lead to, and if nobody named a backend also this machine.

    So a job that was started with `--backend local` is found again without saying it twice.
    """
    if settings.backend or settings.context:
        return place(settings, notice=notice)
    here = place(replace(settings, backend="local"), notice=notice)
    if not context.find_kubeconfig_here():
        return here
    there = place(replace(settings, backend="kubernetes"), notice=notice)
    if not folder.entries(here.settings.state / "local" / here.namespace / job):
        return there  # without loading the local backend
    try:
        here.get(job)
    except NotFound:
        return there
    try:
        there.get(job)
    except (NotFound, Unreachable):
        notice(f"`{job}` runs on this machine, not on the cluster")
        return here
    notice(f"a job `{job}` is on this machine too; this is the one on the cluster (`--backend local` for the other)")
    return there
