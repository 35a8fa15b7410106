"""The Kubernetes backend: PyTorchJobs of the Kubeflow training operator."""

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
from kfjob.base.errors import AlreadyExists, BackendError, Forbidden, KfjobError, NotFound, Unreachable, WaitTimeout
from kfjob.cluster import cluster_events, ownership, requests
from kfjob.cluster.client import Backoff, Client
from kfjob.cluster.connect import connect
from kfjob.cluster.errors import Conflict, ConnectionLost
from kfjob.cluster.inventory import KubernetesInventory
from kfjob.cluster.logs import read_pod_log
from kfjob.cluster.objects import (
    architecture_of,
    launch_of,
    own_pods,
    owner_uid,
    snapshot,
    snapshot_of_pods,
    with_owner,
)
from kfjob.cluster.requests import Selection
from kfjob.cluster.shapes.core import PodShape
from kfjob.cluster.shapes.meta import ListShape, read_version
from kfjob.cluster.watch import Change, JobState, ObjectWatch, merge_watches
from kfjob.joblog.events import JobChanged, JobSnapshot, KubernetesEvent, LogGap, LogLine, PodChanged, WorkloadStatus
from kfjob.objects import api_objects, names

if TYPE_CHECKING:  # read-only commands need no plan
    from kfjob.base.backend_kinds import BackendName
    from kfjob.plan import JobPlan

TAKE_OVER_ATTEMPTS = 5


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

    def submit(self, plan: JobPlan) -> JobRef:
        """Create the job, then its other objects; if that fails, the job is deleted again."""
        from kfjob.kinds.pytorchjob.manifest import compile_manifests

        ref = _make_ref(self._create_job(plan))
        with self._deletes_on_failure(ref):
            for manifest in compile_manifests(plan, owner_uid=ref.uid)[1:]:
                self._client.call(requests.create(manifest))
        return ref

    def apply(self, plan: JobPlan) -> JobRef:
        """Change the live job to match the plan by a server-side apply, where that works in place."""
        from kfjob.cluster import job_update

        for attempt in range(1, TAKE_OVER_ATTEMPTS + 1):
            live = self._client.call(requests.get(api_objects.PYTORCHJOBS, plan.namespace, plan.name))
            manifest = job_update.manifest_to_apply(plan, live)
            try:
                if operations := ownership.take_over_patch(live):
                    self._client.call(requests.patch(api_objects.PYTORCHJOBS, plan.namespace, plan.name, operations))
                break
            except Conflict:  # the operator has written the job's status since `live` was read
                if attempt == TAKE_OVER_ATTEMPTS:
                    raise
        return _make_ref(self._client.call(requests.apply(manifest)))

    def create(self, objects: Sequence[JsonObject]) -> tuple[JobRef, list[JsonObject]]:
        """Create the objects of a template; return the job, and the other objects that existed before."""
        (job,) = (manifest for manifest in objects if manifest["kind"] == api_objects.PYTORCHJOB)
        ref = _make_ref(self._client.call(requests.create(job)))
        existing = []
        with self._deletes_on_failure(ref):
            for manifest in (manifest for manifest in objects if manifest is not job):
                try:
                    owned = manifest if outlives_job(manifest) else with_owner(manifest, ref.name, ref.uid)
                    self._client.call(requests.create(owned))
                except AlreadyExists:
                    existing.append(manifest)
        return ref, existing

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

    def dry_run(self, objects: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the objects as the API server would store them; nothing is created."""
        return [self._client.call(requests.create(manifest, dry_run=True)) for manifest in objects]

    def diff(self, plan: JobPlan) -> list[FieldChange]:
        """Return what the plan would change in the live job, as the API server sees it; nothing is changed."""
        from kfjob.cluster import job_update

        live = self._client.call(requests.get(api_objects.PYTORCHJOBS, plan.namespace, plan.name))
        manifest = job_update.manifest_for_live_job(plan, live)
        changed = self._client.call(requests.dry_run_replace(manifest, resource_version=read_version(live)))
        changes = job_update.job_changes(live, changed)
        etcd_change = job_update.etcd_change(plan, self._get_etcd(plan)) if plan.own_etcd_image else None
        return [*changes, etcd_change] if etcd_change else changes

    def diff_objects(self, objects: Sequence[JsonObject]) -> builtins.list[FieldChange]:
        """Return what the objects of a template would change in those of the live job; nothing is changed."""
        from kfjob.cluster.template_update import read_live_template

        return read_live_template(self._client, objects).find_changes()

    def apply_objects(self, objects: Sequence[JsonObject]) -> tuple[JobRef, builtins.list[JsonObject]]:
        """Change the live objects of a template's job, where that works in place; return the job and the unchanged objects."""
        from kfjob.cluster.template_update import read_live_template

        live = read_live_template(self._client, objects)
        return _make_ref(live.apply()), live.foreign

    def get(self, name: str, *, namespace: str) -> JobSnapshot:
        """Return the job and its pods as they are now."""
        job = self._client.call(requests.get(api_objects.PYTORCHJOBS, namespace, name))
        return snapshot(job, self._list_pods(name, namespace), now=time.time_ns())

    def get_by_pods(self, name: str, *, namespace: str) -> JobSnapshot | None:
        """Return the job as its pods show it; None if it has no pods."""
        return snapshot_of_pods(name, namespace, self._list_pods(name, namespace), now=time.time_ns())

    def pods(self, name: str, *, namespace: str) -> tuple[str, tuple[PodChanged, ...]]:
        """Return the uid of the job of this name and its pods; ("", ()) if it has no pods."""
        pods = self._list_pods(name, namespace)
        uid = next((uid for pod in pods if (uid := owner_uid(pod))), "")
        return uid, own_pods(pods, uid, now=time.time_ns())

    def list(self, *, namespace: str) -> list[JobSnapshot]:
        """Return all PyTorchJobs of a namespace, oldest first, also those that kfjob did not submit."""
        jobs = self._client.call(requests.select_jobs(namespace).list_request()).get("items") or []
        now = time.time_ns()
        return sorted((snapshot(job, now=now) for job in jobs), key=lambda job: (job.job.created or 0, job.name))

    def watch(self, ref: JobRef) -> Iterator[JobChanged | PodChanged]:
        """Yield the present state of the job and its pods, then every change. The final states of pods precede the job's."""
        state = JobState(ref.uid)
        pods = ObjectWatch(self._client, requests.select_job_objects("pods", ref.namespace, ref.name))
        jobs = ObjectWatch(self._client, requests.select_object(api_objects.PYTORCHJOBS, ref.namespace, ref.name))
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
        job = self._client.call(requests.get(api_objects.PYTORCHJOBS, ref.namespace, ref.name))
        if job["metadata"]["uid"] != ref.uid:
            raise NotFound(f"job `{ref.name}` is gone; another job has its name")
        return cluster_events.read_events(self._client, job)

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
            self._client.call(requests.delete_job(ref.namespace, ref.name, ref.uid))
        except Conflict as err:  # the uid precondition failed: a later job has the name
            raise NotFound(f"job `{ref.name}` is gone; another job has its name, and was not changed") from err
        backoff, attempt = Backoff(most=2.0), 1
        while not self._is_gone(ref):
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not self._client.pause(min(remaining, backoff.delay(attempt))):
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
                self._client.call(requests.delete_job(ref.namespace, ref.name, ref.uid))
            raise

    def _create_job(self, plan: JobPlan) -> JsonObject:
        """Create the job and return it. If the response is lost, look whether the server executed the request."""
        from kfjob.kinds.pytorchjob.manifest import compile_manifests

        try:
            return self._client.call(requests.create(compile_manifests(plan)[0]))
        except (Unreachable, BackendError) as lost:
            if isinstance(lost.__cause__, ConnectionLost) and not lost.__cause__.sent:
                raise
            with contextlib.suppress(KfjobError):
                job = self._client.call(requests.get(api_objects.PYTORCHJOBS, plan.namespace, plan.name))
                if launch_of(job) == plan.launch:
                    return job
            raise

    def _list_pods(self, job: str, namespace: str) -> builtins.list[JsonObject]:
        request = requests.select_job_objects("pods", namespace, job).list_request()
        pods: builtins.list[JsonObject] = self._client.call(request, shape=ListShape[PodShape]).get("items") or []
        return pods

    def _get_etcd(self, plan: JobPlan) -> JsonObject | None:
        try:
            return self._client.call(requests.get("pods", plan.namespace, names.etcd_name(plan.name)))
        except NotFound:
            return None

    def _is_gone(self, ref: JobRef) -> bool:
        """Return whether no object of a job that is being deleted is left; the cheapest request comes first."""
        try:
            return not (
                self._list_remaining(requests.select_object(api_objects.PYTORCHJOBS, ref.namespace, ref.name), ref)
                or self._list_remaining(requests.select_job_objects("pods", ref.namespace, ref.name), ref)
                or self._list_remaining(requests.select_job_objects("services", ref.namespace, ref.name), ref)
            )
        except (Unreachable, BackendError):  # the deletion continues without kfjob
            return False

    def _list_remaining(self, selection: Selection, ref: JobRef) -> tuple[str, ...]:
        """Return the names of the objects that are the job or belong to it."""
        items = self._client.call(selection.list_request()).get("items") or []
        return tuple(item["metadata"]["name"] for item in items if ref.uid in {item["metadata"]["uid"], owner_uid(item)})

    def _make_timeout(self, ref: JobRef, timeout: float) -> WaitTimeout:
        pods = self._list_remaining(requests.select_job_objects("pods", ref.namespace, ref.name), ref)
        title = f"job `{ref.name}` is being deleted, but not gone after {timeout:g} s"
        cause = (
            f"still there: {', '.join(f'`{pod}`' for pod in pods)}" if pods else "its pods are gone, the job itself is not yet"
        )
        selector = f"-n {ref.namespace} -l {api_objects.LABEL_JOB_NAME}={ref.name}"
        hint = f"Kubernetes continues the deletion; `kubectl get pods {selector}` shows its progress"
        return WaitTimeout(title, cause=cause, hint=hint)


def _list_then_merge(jobs: ObjectWatch, pods: ObjectWatch) -> Generator[Change]:
    yield jobs.list()
    yield pods.list()
    yield from merge_watches([jobs, pods])


def _make_ref(job: JsonObject) -> JobRef:
    metadata = job["metadata"]
    namespace = metadata.get("namespace", "")
    return JobRef(backend="kubernetes", namespace=namespace, name=metadata["name"], uid=metadata["uid"], launch=launch_of(job))
