"""The target of a command: the settings, the backend that they select, and the namespace."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.open_backend import open_cluster, open_machine
from kfjob.api.settings import Settings
from kfjob.backends import folder, kubeconfig
from kfjob.backends.base import Backend, ClusterBackend, MachineBackend
from kfjob.backends.resources import CORE
from kfjob.base.capabilities import AUTO_TARGET, CAPABILITIES, BackendName, Capabilities, find_name
from kfjob.base.common_types import Notify, ignore_notice
from kfjob.base.errors import Forbidden, NotFound, Refused, Unreachable, UsageError
from kfjob.base.text import find_similar, join_names
from kfjob.joblog.events import JobSnapshot
from kfjob.kinds.base import JobKind
from kfjob.kinds.registry import KINDS, find_kind, find_target_kind

if TYPE_CHECKING:
    from kfjob.plan import Origin


FAILURE_CHECK = ("-m", "kfjob.api.failure_check")
"""Arguments of a Python that prints why a restart of a job is futile."""
GUARD = ("-m", "kfjob.guard")
"""Arguments of a Python that guards a job with `recovery`."""


class Target(Struct, frozen=True, dict=True):
    """One backend and one namespace."""

    settings: Settings
    name: BackendName
    namespace: str
    needs_cluster: bool = False
    """Whether the job can run on no other backend, as that of a template."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the backend."""
        return CAPABILITIES[self.name]

    @property
    def job_kind(self) -> JobKind:
        """The kind of the jobs that are submitted to a cluster, as far as it is decided."""
        return find_kind(self.settings.job_kind)

    def choose_kind(self, wanted: str | None) -> KindChoice:
        """Return the target with the kind of a job, whose spec has the `target` wanted; only `auto` asks the cluster.

        Raises:
            Refused: the cluster offers no kind of job (`auto`).
            KfjobError: the cluster cannot be asked (`auto`).
        """
        if kind := self.settings.job_kind.replace(AUTO_TARGET, ""):
            return KindChoice(self, "cluster", "`--target`, or the kind of the live job or of its last launch")
        configured = self.settings.target
        choice = AUTO_TARGET if self.settings.job_kind else wanted or configured
        if choice == AUTO_TARGET and self.capabilities.has_api_server:
            kind, reason = self._ask_for_kind()
            return KindChoice(self.change(job_kind=kind), "cluster", reason)
        if kind := find_target_kind(choice or ""):
            origin: Origin = "spec" if choice == wanted else "cluster"
            return KindChoice(self.change(job_kind=kind), origin, "`target` in KFJOB_TARGET or a configuration file")
        return KindChoice(self, "default", "a cluster without the training operator gets a TrainJob")

    def _ask_for_kind(self) -> tuple[str, str]:
        """Return the first kind of job that the cluster offers, and the reason."""
        inventory = self.cluster.inventory(self.namespace)
        for kind in KINDS.values():
            if kind.resource in inventory.list_resources(kind.api_version):
                return kind.name, f"`auto`: the first of {join_names(KINDS)} that the cluster offers"
        hint = "; ".join(f"`{kind.install_command}`" for kind in KINDS.values() if kind.install_command)
        title = f"the cluster offers no kind of job that kfjob knows: {join_names(KINDS)}"
        raise Refused(title, hint=f"an administrator installs one of them: {hint}")

    def check_namespace(self) -> None:
        """Check that the cluster has the namespace, as far as the user may read namespaces.

        Raises:
            NotFound: there is no such namespace.
            Unreachable: no cluster is configured, or it does not answer.
        """
        if not self.capabilities.has_api_server:
            return
        with suppress(Forbidden):
            if self.cluster.inventory(self.namespace).get_object(CORE, "namespaces", self.namespace, namespaced=False) is None:
                hint = f"`kubectl get namespaces` lists them, and `kubectl create namespace {self.namespace}` creates it"
                raise NotFound(f"there is no namespace `{self.namespace}` on the cluster", hint=hint)

    @property
    def backend(self) -> Backend:
        """The backend, opened when it is first used.

        Raises:
            Unreachable: no cluster is configured.
        """
        return self.cluster if self.capabilities.has_api_server else self.machine

    @cached_property
    def cluster(self) -> ClusterBackend:
        """The backend, for what only a cluster can do.

        Raises:
            UsageError: the target is this machine.
            Unreachable: no cluster is configured.
        """
        if not self.capabilities.has_api_server:
            hint = "`--backend kubernetes` selects the cluster"
            if not kubeconfig.find_current_context(self.settings.context):
                hint = "no kubeconfig names a cluster; `kfjob doctor` shows how to reach one"
            raise UsageError("this command needs a cluster, and jobs run on this machine", hint=hint)
        return self._open_cluster()

    @cached_property
    def machine(self) -> MachineBackend:
        """The local backend, also if the target is a cluster."""
        settings = self.settings
        return open_machine(state=settings.state, failure_check=FAILURE_CHECK, guard=GUARD, python=settings.local_python)

    def change(self, *, namespace: str | None = None, job_kind: str | None = None, user: str | None = None) -> Target:
        """Return the target with another namespace, kind of jobs or submitter. It shares the backends that are open."""
        settings = self.settings if job_kind is None else dataclasses.replace(self.settings, job_kind=job_kind)
        settings = settings if user is None else dataclasses.replace(settings, user=user)
        changed = replace(self, settings=settings, namespace=self.namespace if namespace is None else namespace)
        vars(changed).update({name: value for name, value in vars(self).items() if name in ("cluster", "machine")})
        return changed

    @property
    def kube_context(self) -> str:
        """The name of the kubeconfig context in use; "" without a kubeconfig."""
        current = kubeconfig.find_current_context(self.settings.context)
        return current.name if current else ""

    def get_job(self, job: str) -> JobSnapshot:
        """Return the job as it is now.

        Raises:
            NotFound: the job does not exist.
        """
        return self.backend.get(job, namespace=self.namespace)

    def list_names(self) -> list[str]:
        """Return the names of the jobs in the namespace, and of those in the archive.

        Raises:
            Unreachable, Forbidden: the cluster's jobs cannot be listed.
        """
        archived = [entry.name for entry in folder.list_folders(self.settings.archive_folder / self.namespace)]
        return sorted({*archived, *(job.name for job in self.backend.list(namespace=self.namespace))})

    def suggest(self, job: str, err: NotFound) -> NotFound:
        """Return the error for a job that does not exist; its hint names the job with the most similar name."""
        if self.has_local_twin(job):
            return NotFound(err.title, cause=err.cause, hint=f"this machine has a job `{job}`: `--backend local` selects it")
        if self.capabilities.runs_on_this_machine:
            others = [other.namespace for other in self.backend.list(namespace=None) if other.name == job]
            if others:
                return NotFound(err.title, cause=err.cause, hint=f"it is in another namespace: add `-n {others[-1]}`")
        with suppress(Forbidden, Unreachable):
            names = self.list_names()
            if job in names:
                hint = f"it was stopped: `kfjob status {job}` reads its archive, `kfjob relaunch {job}` starts it again"
                return NotFound(err.title, cause=err.cause, hint=hint)
            if similar := find_similar(job, names):
                hint = f"did you mean `{similar}`? `kfjob list` shows the jobs"
                return NotFound(err.title, cause=err.cause, hint=hint)
        return err

    def has_local_twin(self, job: str) -> bool:
        """Return whether this machine has the job, and the target is a cluster."""
        if self.needs_cluster or not self.capabilities.has_api_server:
            return False
        local = make_target(dataclasses.replace(self.settings, backend="local"), "local")
        if not folder.list_folders(self.settings.state / "local" / local.namespace / job):
            return False  # without opening the local backend
        with suppress(NotFound):
            return bool(local.get_job(job))
        return False

    def read_job(self, job: str) -> JobSnapshot:
        """Return the job as it is now; if the user may not read jobs, what its pods show. The result is for reading only.

        Raises:
            NotFound: the job does not exist.
            Forbidden: neither the job nor its pods may be read.
        """
        try:
            return self.get_job(job)
        except Forbidden:
            if self.capabilities.has_api_server:
                with suppress(Forbidden):  # report the right to read jobs as missing
                    if snapshot := self.cluster.get_by_pods(job, namespace=self.namespace):
                        return snapshot
            raise

    def _open_cluster(self) -> ClusterBackend:
        name = self.settings.context
        if not kubeconfig.find_current_context(name):
            local = "" if self.needs_cluster else "; `--backend local` runs on this machine"
            raise Unreachable(
                f"no context `{name}` in kubeconfig" if name else "no kubeconfig",
                cause="neither KUBECONFIG nor ~/.kube/config names a cluster, and this is not a pod",
                hint="`aws eks update-kubeconfig --name CLUSTER` writes one" + local,
            )
        return open_cluster(context=name)


class KindChoice(NamedTuple):
    """The target with the kind of a job, and why it has that kind."""

    target: Target
    origin: Origin
    reason: str


def find_target(settings: Settings, *, notify: Notify = ignore_notice) -> Target:
    """Return the target that the settings select.

    `notify` receives a notice if a missing kubeconfig decides. Pass it where a job is started or looked for.
    """
    name = choose_backend(settings, notify=notify)
    return make_target(settings, name)


def make_target(settings: Settings, name: BackendName) -> Target:
    """Return the target on this backend, in the namespace of the settings, else of the kubeconfig, else `default`."""
    if settings.namespace:
        return Target(settings, name, settings.namespace)
    current = kubeconfig.find_current_context(settings.context) if CAPABILITIES[name].has_api_server else None
    return Target(settings, name, current.namespace if current else "default")


def explain_namespace(target: Target) -> tuple[Origin, str]:
    """Return the origin of the target's namespace, and the reason for it."""
    if target.settings.namespace:
        return "cluster", "from `--namespace`, `KFJOB_NAMESPACE` or a configuration file"
    if target.capabilities.runs_on_this_machine:
        return "default", "a job on this machine is in `default` unless `--namespace` names another"
    current = kubeconfig.find_current_context(target.settings.context)
    if current is None:
        return "default", "no kubeconfig has a current context, which would name another"
    return "cluster", f"the namespace of context `{current.name}`"


def list_targets(settings: Settings) -> list[Target]:
    """Return the targets where a job of the settings may be: both backends, unless the settings name one."""
    local, cluster = make_target(settings, "local"), make_target(settings, "kubernetes")
    if settings.backend or settings.context:
        return [local if settings.backend == "local" else cluster]
    return [local, cluster] if kubeconfig.find_current_context() else [local]


def choose_backend(settings: Settings, *, notify: Notify) -> BackendName:
    """Return the backend of the settings, else kubernetes where a kubeconfig context exists, else local with a notice."""
    name, _ = explain_backend(settings)
    if name == "local" and settings.backend != "local":
        notify("no kubeconfig found: running on this machine (`--backend local` hides this notice)")
    return name


def explain_backend(settings: Settings) -> tuple[BackendName, str]:
    """Return the backend that the settings select, and the reason."""
    if name := find_name(settings.backend):
        return name, f"`backend` is set to `{name}`"
    if settings.context:
        return "kubernetes", f"`context` is set to `{settings.context}`"
    if current := kubeconfig.find_current_context():
        return "kubernetes", f"the current context is `{current.name}`"
    return "local", "no kubeconfig names a cluster"


def find_job_target(job: str, settings: Settings, *, notify: Notify) -> Target:
    """Return the target of a job to read: that of the settings; if they name no backend and it lacks the job, this machine.

    So a job that was started with `--backend local` is found without repeating the option. Commands that change a job take
    `find_target`, as kubectl does: they act on no other place than the one that is chosen.
    """
    target = find_target(settings)
    if settings.backend or settings.context or not target.has_local_twin(job):
        return target
    try:
        target.get_job(job)
    except (NotFound, Unreachable):
        notify(f"`{job}` runs on this machine, not on the cluster")
        return make_target(dataclasses.replace(settings, backend="local"), "local")
    notify(f"a job `{job}` runs on this machine too; this is the one on the cluster (`--backend local` selects the other)")
    return target
