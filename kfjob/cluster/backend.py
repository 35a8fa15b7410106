"""The Kubernetes backend: jobs of every kind that `kfjob.kinds` knows, on one cluster."""

from __future__ import annotations

import builtins
import contextlib
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from kfjob.backends.base import FieldChange, JobRef, LineFilterFactory, LogEvent, LogRange
from kfjob.backends.resources import outlives_job
from kfjob.base.common_types import JsonObject
from kfjob.base.concurrency import cleaning_up
from kfjob.base.errors import (
    AlreadyExists,
    BackendError,
    Forbidden,
    KfjobError,
    NotFound,
    Refused,
    Unreachable,
    WaitTimeout,
)
from kfjob.base.http import backoff
from kfjob.cluster import cluster_events, requests
from kfjob.cluster.client import Client
from kfjob.cluster.connect import connect
from kfjob.cluster.errors import Conflict
from kfjob.cluster.inventory import KubernetesInventory
from kfjob.cluster.live_objects import is_part_of_launch, read_live_objects, with_owner
from kfjob.cluster.logs import read_pod_log
from kfjob.cluster.pods import architecture_of, own_pods, snapshot, snapshot_of_pods
from kfjob.cluster.requests import Selection
from kfjob.cluster.watch import Change, JobState, ObjectWatch, merge_watches
from kfjob.joblog.events import JobChanged, JobSnapshot, KubernetesEvent, LogGap, LogLine, PodChanged, WorkloadStatus
from kfjob.kinds.base import JobKind
from kfjob.kinds.registry import KINDS, find_kind, get_job, get_kind
from kfjob.objects.reading import get_launch
from kfjob.objects.shapes.core import PodShape
from kfjob.objects.shapes.meta import ListShape

if TYPE_CHECKING:
    from kfjob.base.capabilities import BackendName


class KubernetesBackend:
    """Implements `ClusterBackend` on one cluster. Methods may be called from several threads at once."""

    name: ClassVar[BackendName] = "kubernetes"

    def __init__(self, client: Client, *, namespace: str = "default") -> None:
        """`namespace` is the default namespace of jobs."""
        self._client = client
        self.namespace = namespace

    @classmethod
    def from_kubeconfig(
        cls, *, context: str | None = None, namespace: str | None = None, kubeconfig: str | Path | None = None
    ) -> Self:
        """Return the cluster of a kubeconfig's context, or without a kubeconfig the cluster of this pod.

        Raises:
            Unreachable, UsageError, Forbidden: see `connect`.
        """
        connection = connect(context=context, kubeconfig=kubeconfig)
        return cls(connection.client, namespace=namespace or connection.namespace)

    def inventory(self, namespace: str) -> KubernetesInventory:
        """Return a reader of what the cluster has, for jobs of a namespace."""
        return KubernetesInventory(self._client, namespace)

    def submit(self, objects: Sequence[JsonObject]) -> tuple[JobRef, list[JsonObject]]:
        """Create the job, then its other objects; if that fails, the job is deleted again."""
        job = get_job(objects)
        kind, existing = get_kind(job), list[JsonObject]()
        ref = _make_ref(kind, self._create_job(kind, job))
        owner = kind.make_owner_reference(ref.name, ref.uid)
        with self._deletes_on_failure(ref):
            for item in (item for item in objects if item is not job):
                try:
                    self._client.call(requests.create(item if outlives_job(item) else with_owner(item, owner)))
                except AlreadyExists:
                    if is_part_of_launch(item, job):
                        raise
                    existing.append(item)
        return ref, existing

    def apply(self, objects: Sequence[JsonObject]) -> tuple[JobRef, list[JsonObject]]:
        """Change the live objects, where that works in place; return the job and the objects that do not belong to it."""
        live = read_live_objects(self._client, objects)
        return _make_ref(live.kind, live.apply()), live.foreign

    def diff(self, objects: Sequence[JsonObject]) -> list[FieldChange]:
        """Return what the objects would change in the live ones, as the API server sees it; nothing is changed."""
        return read_live_objects(self._client, objects).find_changes()

    def dry_run(self, objects: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the objects as the API server would store them; nothing is created."""
        return [self._client.call(requests.create(manifest, dry_run=True)) for manifest in objects]

    def apply_object(self, manifest: JsonObject) -> None:
        """Create an object, or change it to match the manifest, by a server-side apply."""
        self._client.call(requests.apply(manifest))

    def node_architectures(self) -> frozenset[str]:
        """Return the architectures of the nodes; empty if the user may not list nodes."""
        try:
            nodes = self._client.call(requests.list_nodes()).get("items") or ()
        except Forbidden:
            return frozenset()
        return frozenset(architecture for node in nodes if (architecture := architecture_of(node)))

    def get(self, name: str, *, namespace: str) -> JobSnapshot:
        """Return the job and its pods as they are now."""
        kind, job = self._find_job(name, namespace)
        return snapshot(kind, job, self._list_pods(kind, name, namespace), now=time.time_ns())

    def get_by_pods(self, name: str, *, namespace: str) -> JobSnapshot | None:
        """Return the job as its pods show it; None if it has no pods."""
        for kind in KINDS.values():
            pods = self._list_pods(kind, name, namespace)
            if found := snapshot_of_pods(kind, name, namespace, pods, now=time.time_ns()):
                return found
        return None

    def pods(self, name: str, *, namespace: str) -> tuple[str, tuple[PodChanged, ...]]:
        """Return the uid of the job of this name and its pods; ("", ()) if it has no pods."""
        for kind in KINDS.values():
            pods = self._list_pods(kind, name, namespace)
            if uid := next((uid for pod in pods if (uid := kind.find_job_uid(pod))), ""):
                return uid, own_pods(kind, pods, uid, now=time.time_ns())
        return "", ()

    def list(self, *, namespace: str) -> list[JobSnapshot]:
        """Return all jobs of a namespace, oldest first, also those that kfjob did not submit."""
        now, jobs, errors = time.time_ns(), builtins.list[JobSnapshot](), builtins.list[KfjobError]()
        for kind in KINDS.values():
            try:
                items = self._client.call(requests.select_jobs(kind, namespace).list_request()).get("items") or []
            except (Forbidden, NotFound, Refused) as err:  # the cluster does not have this kind, or not for this user
                errors.append(err)
                continue
            jobs += (snapshot(kind, job, now=now) for job in items)
        if len(errors) == len(KINDS):
            raise errors[0]
        return sorted(jobs, key=lambda job: (job.job.created or 0, job.name))

    def watch(self, ref: JobRef) -> Iterator[JobChanged | PodChanged]:
        """Yield the present state of the job and its pods, then every change. The final states of pods precede the job's."""
        kind = find_kind(ref.job_kind)
        state = JobState(kind, ref.uid)
        pods = ObjectWatch(self._client, requests.select_dependents(kind, "pods", ref.namespace, ref.name))
        jobs = ObjectWatch(self._client, requests.select_job(kind, ref.namespace, ref.name))
        with contextlib.closing(_list_then_merge(jobs, pods)) as changes:
            for change in changes:
                for event in state.take(change, now=time.time_ns()):
                    if isinstance(event, JobChanged) and event.phase.ended:
                        yield from state.take(pods.list(), now=time.time_ns())
                        yield event
                        return
                    yield event

    def events(self, ref: JobRef) -> builtins.list[KubernetesEvent | WorkloadStatus]:
        """Return the cluster's events about this launch and its state in a queue, oldest first."""
        kind = find_kind(ref.job_kind)
        job = self._client.call(requests.get_job(kind, ref.namespace, ref.name))
        if job["metadata"]["uid"] != ref.uid:
            raise NotFound(f"job `{ref.name}` is gone; another job has its name")
        return cluster_events.read_events(self._client, kind, job)

    def logs(
        self, ref: JobRef, pod: str, log_range: LogRange, *, pod_state: PodChanged | None = None
    ) -> Iterator[LogLine | LogGap]:
        """Yield the lines of one pod's container, oldest first."""
        return read_pod_log(self._client, ref, pod, log_range, pod_state=pod_state)

    def filtered_logs(self, ref: JobRef, pod: str, log_range: LogRange, line_filter: LineFilterFactory) -> Iterator[LogEvent]:
        """Yield the selected lines of one pod's container, oldest first, and of the others one per second and the last."""
        return read_pod_log(self._client, ref, pod, log_range, line_filter=line_filter)

    def stop(self, ref: JobRef, *, timeout: float) -> None:
        """Delete this launch, and wait until the job, its pods and its services are gone."""
        deadline = time.monotonic() + timeout
        try:
            self._client.call(requests.delete_job(find_kind(ref.job_kind), ref.namespace, ref.name, ref.uid))
        except Conflict as err:  # the uid precondition failed: a later job has the name
            raise NotFound(f"job `{ref.name}` is gone; another job has its name, and was not changed") from err
        attempt = 1
        while not self._is_gone(ref):
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not self._client.pause(min(remaining, backoff(attempt, longest=2.0))):
                raise self._make_timeout(ref, timeout)
            attempt += 1

    def close(self) -> None:
        """End every stream and every wait, in all threads. The backend cannot be used afterwards."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextlib.contextmanager
    def _deletes_on_failure(self, ref: JobRef) -> Iterator[None]:
        """Delete the job again if its other objects cannot be created."""
        try:
            yield
        except BaseException:
            notice = f"job `{ref.name}` may still exist; `kfjob stop {ref.name}` removes it"
            with contextlib.suppress(KfjobError), cleaning_up(notice):  # the first failure is the one to report
                self._client.call(requests.delete_job(find_kind(ref.job_kind), ref.namespace, ref.name, ref.uid))
            raise

    def _create_job(self, kind: JobKind, job: JsonObject) -> JsonObject:
        """Create the job and return it. If the response is lost, look whether the server executed the request."""
        try:
            return self._client.call(requests.create(job))
        except (Unreachable, BackendError):
            with contextlib.suppress(KfjobError):
                metadata = job["metadata"]
                live = self._client.call(requests.get_job(kind, metadata["namespace"], metadata["name"]))
                if get_launch(live) == get_launch(job):
                    return live
            raise

    def _find_job(self, name: str, namespace: str) -> tuple[JobKind, JsonObject]:
        """Return the job of a name with its kind.

        Raises:
            NotFound: the job does not exist.
            Refused: the cluster has no kind of job that kfjob knows.
        """
        errors = builtins.list[KfjobError]()
        for kind in KINDS.values():
            try:
                return kind, self._client.call(requests.get_job(kind, namespace, name))
            except (NotFound, Refused) as err:
                errors.append(err)
        raise next((err for err in errors if isinstance(err, NotFound)), errors[0])

    def _list_pods(self, kind: JobKind, job: str, namespace: str) -> builtins.list[JsonObject]:
        request = requests.select_dependents(kind, "pods", namespace, job).list_request()
        pods: builtins.list[JsonObject] = self._client.call(request, shape=ListShape[PodShape]).get("items") or []
        return pods

    def _is_gone(self, ref: JobRef) -> bool:
        """Return whether no object of a job that is being deleted is left; the cheapest request comes first."""
        kind = find_kind(ref.job_kind)
        try:
            return not self._list_remaining(requests.select_job(kind, ref.namespace, ref.name), ref) and not any(
                self._list_remaining(requests.select_dependents(kind, resource, ref.namespace, ref.name), ref)
                for resource in kind.dependents
            )
        except (Unreachable, BackendError):  # the deletion continues without kfjob
            return False

    def _list_remaining(self, selection: Selection, ref: JobRef) -> tuple[str, ...]:
        """Return the names of the objects that are the job or belong to it."""
        find_uid = find_kind(ref.job_kind).find_job_uid
        items = self._client.call(selection.list_request()).get("items") or []
        return tuple(item["metadata"]["name"] for item in items if ref.uid in {item["metadata"]["uid"], find_uid(item)})

    def _make_timeout(self, ref: JobRef, timeout: float) -> WaitTimeout:
        kind = find_kind(ref.job_kind)
        pods = self._list_remaining(requests.select_dependents(kind, "pods", ref.namespace, ref.name), ref)
        title = f"job `{ref.name}` is being deleted, but not gone after {timeout:g} s"
        cause = (
            f"still there: {', '.join(f'`{pod}`' for pod in pods)}" if pods else "its pods are gone, the job itself is not yet"
        )
        selector = f"-n {ref.namespace} -l {kind.select_pods(ref.name)}"
        hint = f"Kubernetes continues the deletion; `kubectl get pods {selector}` shows its progress"
        return WaitTimeout(title, cause=cause, hint=hint)


def _list_then_merge(jobs: ObjectWatch, pods: ObjectWatch) -> Generator[Change]:
    yield jobs.list()
    yield pods.list()
    yield from merge_watches([jobs, pods])


def _make_ref(kind: JobKind, job: JsonObject) -> JobRef:
    metadata = job["metadata"]
    return JobRef(
        backend="kubernetes",
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        launch=get_launch(job),
        job_kind=kind.name,
    )
