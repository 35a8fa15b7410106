"""The Kubernetes backend: jobs of every kind that `kfjob.kinds` knows, on one cluster."""

from __future__ import annotations

import builtins
import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from kfjob.backends.base import CommandStreams, FieldChange, JobRef, LineFilterFactory, LogEvent, LogRange
from kfjob.backends.resources import outlives_job
from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.concurrency import cleaning_up
from kfjob.base.errors import (
    AlreadyExists,
    BackendError,
    Forbidden,
    KfjobError,
    NotFound,
    Refused,
    Unreachable,
)
from kfjob.cluster import cluster_events, requests
from kfjob.cluster.client import Client
from kfjob.cluster.connect import connect
from kfjob.cluster.deletion import delete_and_wait, has_remains
from kfjob.cluster.inventory import KubernetesInventory
from kfjob.cluster.live_objects import is_part_of_launch, read_live_objects, with_owner
from kfjob.cluster.logs import read_pod_log
from kfjob.cluster.pods import architecture_of, own_pods, snapshot, snapshot_of_pods
from kfjob.cluster.prerequisites import created_before_job
from kfjob.cluster.watch import Change, JobState, ListedObjects, ObjectWatch, merge_watches
from kfjob.joblog.events import (
    JobChanged,
    JobSnapshot,
    KubernetesEvent,
    LogGap,
    LogLine,
    PodChanged,
    StateEvent,
    WorkloadStatus,
)
from kfjob.kinds.base import JobKind
from kfjob.kinds.registry import KINDS, find_kind, get_job, get_kind, identify, is_job, is_prerequisite
from kfjob.objects.reading import get_launch
from kfjob.objects.shapes.core import PodShape
from kfjob.objects.shapes.meta import ListShape

if TYPE_CHECKING:
    from kfjob.base.capabilities import BackendName

_Answer = TypeVar("_Answer")


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
        """Create the job, then its other objects; if that fails, the job is deleted again.

        Its prerequisites are created first, and owned by the job when it exists.
        """
        job = get_job(objects)
        kind, existing = get_kind(job), list[JsonObject]()
        prerequisites = [item for item in objects if is_prerequisite(item)]
        with created_before_job(self._client, prerequisites, job):
            ref = _make_ref(kind, self._create_job(kind, job))
        owner = kind.make_owner_reference(ref.name, ref.uid)
        with self._deletes_on_failure(ref):
            for item in prerequisites:
                self._client.change(requests.apply(with_owner(item, owner)))
            for item in (item for item in objects if item is not job and item not in prerequisites):
                try:
                    self._client.change(requests.create(item if outlives_job(item) else with_owner(item, owner)))
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
        return [self._dry_run(manifest) for manifest in objects]

    def _dry_run(self, manifest: JsonObject) -> JsonObject:
        try:
            return self._client.change(requests.create(manifest, dry_run=True))
        except Refused as err:  # a dry run creates no prerequisites; the server has checked the schema before it refuses
            if is_job(manifest) and get_kind(manifest).lacks_only_prerequisite(manifest, err.cause or ""):
                return manifest
            raise

    def apply_object(self, manifest: JsonObject) -> None:
        """Create an object, or change it to match the manifest, by a server-side apply."""
        self._client.change(requests.apply(manifest))

    def create_object(self, manifest: JsonObject) -> JsonObject:
        """Create one object, and return it as the API server has stored it."""
        return self._client.change(requests.create(manifest))

    def replace_object(self, manifest: JsonObject) -> JsonObject:
        """Replace one object, if it has not changed since it was read, and return it as the API server has stored it."""
        return self._client.change(requests.replace_object(manifest))

    def delete_object(self, manifest: JsonObject) -> None:
        """Delete one object; with a uid in its metadata, only the object with this uid."""
        self._client.call(requests.delete_object(manifest))

    def annotate(self, ref: JobRef, annotations: JsonMapping) -> None:
        """Add annotations to this launch of a job that kfjob submitted, which has annotations already."""
        paths = {f"/metadata/annotations/{key.replace('/', '~1')}": value for key, value in annotations.items()}
        operations = [
            _expect_uid(ref),
            *({"op": "add", "path": path, "value": value} for path, value in paths.items()),
        ]
        self._client.change(requests.patch(_name_job(ref), operations))

    def watch_jobs(self, namespace: str) -> Iterator[JobSnapshot]:
        """Yield the jobs of a namespace without their pods, then every job that is created or changed."""

        def start(kind: JobKind) -> tuple[ObjectWatch, ListedObjects]:
            watch = ObjectWatch(self._client, requests.select_jobs(kind, namespace))
            return watch, watch.list()

        kinds = {kind.resource: kind for kind in KINDS.values()}
        answers = _ask_for_kinds(start)
        for kind, (_, listed) in answers:
            yield from (snapshot(kind, item, now=time.time_ns()) for item in listed.present)
        with contextlib.closing(merge_watches([watch for _, (watch, _) in answers])) as changes:
            for change in changes:
                yield from (snapshot(kinds[change.resource], item, now=time.time_ns()) for item in change.present)

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
        pods, store = self._list_pods(kind.select_pods(name), namespace), self._list_store(kind, job, namespace)
        return snapshot(kind, job, pods, store=store, now=time.time_ns())

    def get_by_pods(self, name: str, *, namespace: str) -> JobSnapshot | None:
        """Return the job as its pods show it; None if it has no pods."""
        for kind in KINDS.values():
            pods = self._list_pods(kind.select_pods(name), namespace)
            if found := snapshot_of_pods(kind, name, namespace, pods, now=time.time_ns()):
                return found
        return None

    def pods(self, name: str, *, namespace: str) -> tuple[str, tuple[PodChanged, ...]]:
        """Return the id (`identify`) of the job of this name and its pods; ("", ()) if it has no pods."""
        for kind in KINDS.values():
            pods = self._list_pods(kind.select_pods(name), namespace)
            if job_id := next((job_id for pod in pods if (job_id := kind.find_job_id(pod))), ""):
                return job_id, own_pods(kind, pods, job_id, now=time.time_ns())
        return "", ()

    def list(self, *, namespace: str | None) -> list[JobSnapshot]:
        """Return all jobs of a namespace, or of all namespaces, oldest first, also those that kfjob did not submit."""
        now = time.time_ns()
        answers = _ask_for_kinds(lambda kind: self._client.call(requests.select_jobs(kind, namespace or "").list_request()))
        jobs = [snapshot(kind, job, now=now) for kind, answer in answers for job in answer.get("items") or ()]
        return sorted(jobs, key=lambda job: (job.job.created or 0, job.name))

    def watch(self, ref: JobRef) -> Iterator[StateEvent]:
        """Yield the present state of the job, its pods and its own etcd, then every change.

        The final states of pods precede the job's.
        """
        kind = find_kind(ref.job_kind)
        state = JobState(kind, ref.uid, identify(ref))
        pods = ObjectWatch(self._client, requests.select_dependents(kind, "pods", ref.namespace, ref.name))
        jobs = ObjectWatch(self._client, requests.select_job(kind, ref.namespace, ref.name))
        with contextlib.closing(self._list_then_merge(kind, jobs, pods)) as changes:
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

    def execute(self, ref: JobRef, pod: PodChanged, command: Sequence[str], streams: CommandStreams) -> int:
        """Run a command in the training container of a pod, and return its exit code."""
        from kfjob.cluster.remote_command import run_command

        has_input, container = streams.stdin is not None, find_kind(ref.job_kind).training_container
        place = (ref.namespace, pod.pod, container)
        request = requests.execute(*place, command, stdin=has_input, terminal=streams.terminal)
        return run_command(self._client, request, streams)

    def stop(self, ref: JobRef, *, timeout: float, force: bool = False) -> None:
        """Delete this launch, and wait until the job, its pods and its services are gone."""
        delete_and_wait(self._client, ref, timeout=timeout, force=force)

    def has_remains(self, ref: JobRef) -> bool:
        """Return whether an object of this launch, which is being deleted, still exists."""
        return has_remains(self._client, ref)

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
            return self._client.change(requests.create(job))
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

    def _list_pods(self, selector: str, namespace: str) -> builtins.list[JsonObject]:
        request = requests.select_pods(selector, namespace).list_request()
        pods: builtins.list[JsonObject] = self._client.call(request, shape=ListShape[PodShape]).get("items") or []
        return pods

    def _list_then_merge(self, kind: JobKind, jobs: ObjectWatch, pods: ObjectWatch) -> Generator[Change]:
        """Yield the job, its pods and its own etcd, then the changes of all."""
        listed = jobs.list()
        yield listed
        yield pods.list()
        watches = [jobs, pods]
        for job in listed.present:
            if name := kind.find_store(job):
                store = ObjectWatch(self._client, requests.select_object("pods", job["metadata"]["namespace"], name))
                yield store.list()
                watches.append(store)
        yield from merge_watches(watches)

    def _list_store(self, kind: JobKind, job: JsonObject, namespace: str) -> builtins.list[JsonObject]:
        """Return the pod of the job's own etcd, or those of its template's etcd; none if the user may not read them."""
        with contextlib.suppress(Forbidden, NotFound, Refused):
            if name := kind.find_store(job):
                return [self._client.call(requests.get("pods", namespace, name), shape=PodShape)]
            if selector := kind.select_template_store(job):
                return self._list_pods(selector, namespace)
        return []


def _ask_for_kinds(ask: Callable[[JobKind], _Answer]) -> list[tuple[JobKind, _Answer]]:
    """Return the answers about each kind of job, without the kinds that the cluster does not have, or not for this user.

    Raises:
        Forbidden, NotFound, Refused: no kind has an answer.
    """
    answers, errors = list[tuple[JobKind, _Answer]](), list[KfjobError]()
    for kind in KINDS.values():
        try:
            answers.append((kind, ask(kind)))
        except (Forbidden, NotFound, Refused) as err:
            errors.append(err)
    if not answers:
        raise errors[0]
    return answers


def _name_job(ref: JobRef) -> JsonObject:
    kind = find_kind(ref.job_kind)
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": ref.name, "namespace": ref.namespace}}


def _expect_uid(ref: JobRef) -> JsonObject:
    """Return the part of a JSON patch that fails for another job of the same name."""
    return {"op": "test", "path": "/metadata/uid", "value": ref.uid}


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
