"""The Kubernetes backend: PyTorchJobs of the Kubeflow training operator."""

from __future__ import annotations

import builtins
import contextlib
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from kfjob.backends.base import FieldChange, JobRef, LogRange
from kfjob.backends.kubernetes import cluster_events, ownership, requests
from kfjob.backends.kubernetes.client import Backoff, Client
from kfjob.backends.kubernetes.connect import connect
from kfjob.backends.kubernetes.errors import Broken, Conflict
from kfjob.backends.kubernetes.inventory import Inventory
from kfjob.backends.kubernetes.logs import PodLog
from kfjob.backends.kubernetes.objects import Object, PodList, launch_of, own_pods, owned, owner, snapshot, snapshot_of_pods
from kfjob.backends.kubernetes.requests import Selection
from kfjob.backends.kubernetes.watch import Change, Feed, JobState, joined
from kfjob.errors import AlreadyExists, BackendError, Forbidden, KfjobError, NotFound, Unreachable, WaitTimeout
from kfjob.events import JobChanged, JobSnapshot, KubernetesEvent, LogGap, LogLine, PodChanged, WorkloadStatus
from kfjob.spec import api_objects, names

if TYPE_CHECKING:
    from kfjob.plan import BackendName, JobPlan

TAKE_OVER_ATTEMPTS = 5


class KubernetesBackend:
    """Implements `Backend` on one cluster. Methods may be called from several threads at once."""

    name: ClassVar[BackendName] = "kubernetes"

    def __init__(self, client: Client, *, namespace: str = "default") -> None:
        """`namespace` is the one to use where nothing else is said."""
        self._client = client
        self.namespace = namespace

    @classmethod
    def from_kubeconfig(
        cls, *, context: str | None = None, namespace: str | None = None, kubeconfig: str | Path | None = None
    ) -> Self:
        """The cluster of a kubeconfig's context, else (inside a pod) the one around us.

        Raises:
            Unreachable, UsageError, Forbidden: see `connect`.
        """
        connection = connect(context=context, kubeconfig=kubeconfig)
        return cls(connection.client, namespace=namespace or connection.namespace)

    def inventory(self, namespace: str) -> Inventory:
        """What the cluster is and has, seen from a namespace of jobs."""
        return Inventory(self._client, namespace)

    def submit(self, plan: JobPlan) -> JobRef:
        """Create the job and then what belongs to it; if that fails, the job is deleted again."""
        from kfjob.compile.pytorchjob import compile_manifests

        ref = _ref(self._created(plan))
        with self._whole_or_gone(ref):
            for manifest in compile_manifests(plan, owner_uid=ref.uid)[1:]:
                self._client.call(requests.create(manifest))
        return ref

    def apply(self, plan: JobPlan) -> JobRef:
        """Change the live job by a server-side apply, where that is possible in place."""
        from kfjob.backends.kubernetes import job_update

        for attempt in range(1, TAKE_OVER_ATTEMPTS + 1):
            live = self._client.call(requests.get(api_objects.PYTORCHJOBS, plan.namespace, plan.name))
            wanted = job_update.manifest_to_apply(plan, live)
            try:
                if operations := ownership.take_over_patch(live):
                    self._client.call(requests.patch(api_objects.PYTORCHJOBS, plan.namespace, plan.name, operations))
                break
            except Conflict:  # the operator has written its status in between
                if attempt == TAKE_OVER_ATTEMPTS:
                    raise
        return _ref(self._client.call(requests.apply(wanted)))

    def create(self, objects: Sequence[Object]) -> tuple[JobRef, list[Object]]:
        """Create objects that somebody wrote: the PyTorchJob first, then the others, which it will own.

        Returns the job, and those of the others that are there already; they are left alone, and not owned.
        """
        job, others = _job_first(objects)
        ref = _ref(self._client.call(requests.create(job)))
        there = []
        with self._whole_or_gone(ref):
            for one in others:
                try:
                    self._client.call(requests.create(owned(one, ref.name, ref.uid)))
                except AlreadyExists:
                    there.append(one)
        return ref, there

    def keep(self, manifest: Object) -> None:
        """Make an object what `manifest` says, whether it is there or not."""
        self._client.call(requests.apply(manifest))

    def architectures(self) -> frozenset[str]:
        """Of the nodes' processors (`amd64`, `arm64`); none where nodes may not be listed."""
        try:
            nodes = self._client.call(requests.nodes()).get("items") or ()
        except Forbidden:
            return frozenset()
        return frozenset(architecture for node in nodes if (architecture := node["status"]["nodeInfo"].get("architecture")))

    def dry_run(self, objects: Sequence[Object]) -> list[Object]:
        """What the API server would make of `objects`, after its webhooks and checks; nothing is created."""
        return [self._client.call(requests.create(one, dry_run=True)) for one in objects]

    def diff(self, plan: JobPlan) -> list[FieldChange]:
        """What the plan would change at the live job, as the API server sees it; nothing is changed.

        Raises:
            NotFound: there is no such job.
            Refused: the job is not kfjob's, or the server would not take the change.
        """
        from kfjob.backends.kubernetes import job_update

        live = self._client.call(requests.get(api_objects.PYTORCHJOBS, plan.namespace, plan.name))
        wanted = job_update.manifest_for_live_job(plan, live)
        version = str(live["metadata"]["resourceVersion"])
        found = job_update.job_changes(live, self._client.call(requests.dry_replace(wanted, resource_version=version)))
        etcd = job_update.etcd_change(plan, self._etcd_of(plan)) if plan.own_etcd_image else None
        return [*found, etcd] if etcd else found

    def get(self, name: str, *, namespace: str) -> JobSnapshot:
        """The job and its pods as they are now."""
        job = self._client.call(requests.get(api_objects.PYTORCHJOBS, namespace, name))
        return snapshot(job, self._pods_of(name, namespace), now=time.time_ns())

    def get_by_pods(self, name: str, *, namespace: str) -> JobSnapshot | None:
        """What the pods alone tell of the job, for who may not see it itself; None where there are none."""
        return snapshot_of_pods(name, namespace, self._pods_of(name, namespace), now=time.time_ns())

    def pods(self, name: str, *, namespace: str) -> tuple[str, tuple[PodChanged, ...]]:
        """The uid of the job of that name as its pods tell it, and these pods, by one question; ("", ()) if there are none."""
        found = self._pods_of(name, namespace)
        uid = next((uid for pod in found if (uid := owner(pod))), "")
        return uid, own_pods(found, uid, now=time.time_ns())

    def _pods_of(self, name: str, namespace: str) -> builtins.list[Object]:
        listing = requests.of_job("pods", namespace, name).listing()
        found: builtins.list[Object] = self._client.call(listing, shape=PodList).get("items") or []
        return found

    def list(self, *, namespace: str) -> list[JobSnapshot]:
        """All PyTorchJobs of a namespace, also those that kfjob did not submit, oldest first."""
        jobs = self._client.call(requests.every_job(namespace).listing()).get("items") or []
        now = time.time_ns()
        return sorted((snapshot(job, now=now) for job in jobs), key=lambda one: (one.job.created or 0, one.name))

    def watch(self, ref: JobRef) -> Iterator[JobChanged | PodChanged]:
        """The present state of job and pods, then every change. What the pods came to is told before the job's end."""
        state = JobState(ref.uid)
        pods = Feed(self._client, requests.of_job("pods", ref.namespace, ref.name))
        jobs = Feed(self._client, requests.one(api_objects.PYTORCHJOBS, ref.namespace, ref.name))
        with contextlib.closing(_listed_then_joined(jobs, pods)) as all_changes:
            for change in all_changes:
                for event in state.take(change, now=time.time_ns()):
                    if isinstance(event, JobChanged) and event.phase.ended:
                        yield from state.take(pods.list(), now=time.time_ns())
                        yield event
                        return
                    yield event

    def events(self, ref: JobRef) -> builtins.list[KubernetesEvent | WorkloadStatus]:
        """What the cluster's controllers wrote down of this very job, its pods and its claims, oldest first."""
        job = self._client.call(requests.get(api_objects.PYTORCHJOBS, ref.namespace, ref.name))
        if job["metadata"]["uid"] != ref.uid:
            raise NotFound(f"job `{ref.name}` is gone, another one has its name")
        return cluster_events.read_events(self._client, job)

    def logs(self, ref: JobRef, pod: str, wanted: LogRange) -> Iterator[LogLine | LogGap]:
        """Lines of one pod's container, oldest first."""
        log = PodLog(self._client, ref, pod, wanted)
        return log.follow() if wanted.follow and not wanted.previous else log.read()

    def stop(self, ref: JobRef, *, timeout: float) -> None:
        """Delete this very job, and wait until it, its pods and its services are gone."""
        deadline = time.monotonic() + timeout
        try:
            self._client.call(requests.delete_job(ref.namespace, ref.name, ref.uid))
        except Conflict as err:  # the precondition: a later job has taken the name
            raise NotFound(f"job `{ref.name}` is gone already; another one of that name is left alone") from err
        backoff, attempt = Backoff(most=2.0), 1
        while not self._is_gone(ref):
            left = deadline - time.monotonic()
            if left <= 0 or not self._client.pause(min(left, backoff.delay(attempt))):
                raise self._still_there(ref, timeout)
            attempt += 1

    def close(self) -> None:
        """End every stream and wait, in all threads; the backend cannot be used any more."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextlib.contextmanager
    def _whole_or_gone(self, ref: JobRef) -> Iterator[None]:
        """Delete the job again if what belongs to it cannot be made."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(KfjobError):  # the first failure is the one to report
                self._client.call(requests.delete_job(ref.namespace, ref.name, ref.uid))
            raise

    def _created(self, plan: JobPlan) -> Object:
        """The job that was created. If the answer to the request is lost, the job itself tells whether it was carried out."""
        from kfjob.compile.pytorchjob import compile_manifests

        try:
            return self._client.call(requests.create(compile_manifests(plan)[0]))
        except (Unreachable, BackendError) as lost:
            if isinstance(lost.__cause__, Broken) and not lost.__cause__.sent:
                raise
            with contextlib.suppress(KfjobError):
                job = self._client.call(requests.get(api_objects.PYTORCHJOBS, plan.namespace, plan.name))
                if _ref(job).launch == plan.launch:
                    return job
            raise

    def _etcd_of(self, plan: JobPlan) -> Object | None:
        try:
            return self._client.call(requests.get("pods", plan.namespace, names.etcd_name(plan.name)))
        except NotFound:
            return None

    def _is_gone(self, ref: JobRef) -> bool:
        """Whether nothing is left of a job that is being deleted; the cheapest question first."""
        try:
            return not (
                self._left(requests.one(api_objects.PYTORCHJOBS, ref.namespace, ref.name), ref)
                or self._left(requests.of_job("pods", ref.namespace, ref.name), ref)
                or self._left(requests.of_job("services", ref.namespace, ref.name), ref)
            )
        except (Unreachable, BackendError):  # the deletion goes on without us
            return False

    def _left(self, selection: Selection, ref: JobRef) -> tuple[str, ...]:
        items = self._client.call(selection.listing()).get("items") or []
        return tuple(one["metadata"]["name"] for one in items if ref.uid in {one["metadata"]["uid"], owner(one)})

    def _still_there(self, ref: JobRef, timeout: float) -> WaitTimeout:
        pods = self._left(requests.of_job("pods", ref.namespace, ref.name), ref)
        title = f"job `{ref.name}` is being deleted, but not gone after {timeout:g} s"
        cause = (
            f"still there: {', '.join(f'`{pod}`' for pod in pods)}" if pods else "its pods are gone, the job itself is not yet"
        )
        selector = f"-n {ref.namespace} -l {api_objects.LABEL_JOB_NAME}={ref.name}"
        hint = f"it goes on without kfjob; `kubectl get pods {selector}` shows how far it is"
        return WaitTimeout(title, cause=cause, hint=hint)


def _listed_then_joined(jobs: Feed, pods: Feed) -> Generator[Change]:
    yield jobs.list()
    yield pods.list()
    yield from joined([jobs, pods])


def _job_first(objects: Sequence[Object]) -> tuple[Object, list[Object]]:
    (job,) = (one for one in objects if one["kind"] == api_objects.PYTORCHJOB)
    return job, [one for one in objects if one is not job]


def _ref(job: Object) -> JobRef:
    metadata = job["metadata"]
    return JobRef(
        backend="kubernetes", namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"], launch=launch_of(job)
    )
