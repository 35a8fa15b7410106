"""A backend that replays a script, for tests of code that uses a `ClusterBackend`.

    fake = FakeBackend()
    fake.play("train", JobChanged(phase=JobPhase.RUNNING), LogLine(pod="train-worker-0", text="…"), JobChanged(phase=…))

`watch` yields the states in order, `logs` the lines of a pod, and `get` returns the newest states. Nothing waits, nothing runs.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec import Struct, field

from kfjob.backends.base import CommandStreams, FieldChange, JobRef, LineFilterFactory, LogEvent, LogRange
from kfjob.base.capabilities import BackendName
from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import AlreadyExists, NotFound, Refused
from kfjob.joblog.events import (
    Event,
    JobChanged,
    JobPhase,
    JobSnapshot,
    KubernetesEvent,
    LinesSkipped,
    LogGap,
    LogLine,
    OpenLine,
    PodChanged,
    WorkloadStatus,
)
from kfjob.kinds.registry import get_job
from kfjob.objects import api_objects
from kfjob.objects.permissions import Permission


class _Job(Struct):
    snapshot: JobSnapshot
    script: list[Event] = field(default_factory=list)


class FakeBackend:
    """Implements `ClusterBackend` with jobs in a dictionary."""

    name: ClassVar[BackendName] = "kubernetes"

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], _Job] = {}
        self.objects: builtins.list[JsonObject] = []  # created or applied
        self.calls: builtins.list[tuple[str, str]] = []  # (verb, job) of each submit and stop

    def play(
        self,
        name: str,
        *script: Event,
        namespace: str = "default",
        spec: str | None = None,
        manifest: str | None = None,
        launch: str = "l1",
        submitted_by: str = "",
        spec_file: str = "",
        start_folder: str = "",
        job_kind: str = "PyTorchJob",
    ) -> JobRef:
        """Add a job whose events are `script`."""
        snapshot = JobSnapshot(
            name=name,
            job_kind=job_kind,
            namespace=namespace,
            job=next((e for e in reversed(script) if isinstance(e, JobChanged)), JobChanged(phase=JobPhase.PENDING)),
            pods=tuple({e.pod: e for e in script if isinstance(e, PodChanged)}.values()),
            uid=f"uid-{launch}",
            launch=launch,
            backend=self.name,
            spec=spec,
            manifest=manifest,
            submitted_by=submitted_by,
            spec_file=spec_file,
            start_folder=start_folder,
        )
        self.jobs[namespace, name] = _Job(snapshot, list(script))
        return JobRef(backend=self.name, namespace=namespace, name=name, uid=snapshot.uid, launch=launch)

    def submit(self, objects: Sequence[JsonObject]) -> tuple[JobRef, builtins.list[JsonObject]]:
        """Add the job without events, so that it stays pending, and record the objects."""
        metadata = get_job(objects)["metadata"]
        annotations = metadata.get("annotations") or {}
        self._check_name(metadata["name"], metadata["namespace"])
        self.calls.append(("submit", metadata["name"]))
        self.objects += objects
        ref = self.play(
            metadata["name"],
            namespace=metadata["namespace"],
            spec=annotations.get(api_objects.ANNOTATION_SPEC),
            manifest=annotations.get(api_objects.ANNOTATION_MANIFEST),
            launch=(metadata.get("labels") or {}).get(api_objects.LABEL_LAUNCH) or "l1",
            submitted_by=annotations.get(api_objects.ANNOTATION_SUBMITTED_BY) or "",
            spec_file=annotations.get(api_objects.ANNOTATION_SPEC_FILE) or "",
        )
        return ref, []

    def apply(self, objects: Sequence[JsonObject]) -> tuple[JobRef, builtins.list[JsonObject]]:
        """Refuse the change."""
        name = self._get_owner(objects).name
        hint = f"`kfjob relaunch {name} --spec FILE` stops it and starts the new spec"
        raise Refused(f"job `{name}` cannot be changed in place", hint=hint)

    def diff(self, objects: Sequence[JsonObject]) -> builtins.list[FieldChange]:
        """Return no changes."""
        self._get_owner(objects)
        return []

    def get(self, name: str, *, namespace: str) -> JobSnapshot:
        """Return the newest states of the script."""
        return self._job(name, namespace).snapshot

    def get_by_pods(self, name: str, *, namespace: str) -> JobSnapshot | None:
        """Return the job, if its script has pods."""
        job = self.jobs.get((namespace, name))
        return job.snapshot if job and job.snapshot.pods else None

    def pods(self, name: str, *, namespace: str) -> tuple[str, tuple[PodChanged, ...]]:
        """Return the uid and the pods of a job."""
        if (namespace, name) not in self.jobs:
            return "", ()
        snapshot = self.get(name, namespace=namespace)
        return snapshot.uid, snapshot.pods

    def list(self, *, namespace: str | None) -> list[JobSnapshot]:
        """Return the jobs of a namespace, or of all, in the order in which they were added."""
        return [job.snapshot for (job_namespace, _), job in self.jobs.items() if namespace in {None, job_namespace}]

    def watch(self, ref: JobRef) -> Iterator[JobChanged | PodChanged]:
        """Yield the states of the job and its pods from the script."""
        yield from (e for e in self._job(ref.name, ref.namespace).script if isinstance(e, JobChanged | PodChanged))

    def events(self, ref: JobRef) -> builtins.list[KubernetesEvent | WorkloadStatus]:
        """Return the cluster's events in the script."""
        script = self._job(ref.name, ref.namespace).script
        return [e for e in script if isinstance(e, KubernetesEvent | WorkloadStatus)]

    def execute(self, ref: JobRef, pod: PodChanged, command: Sequence[str], streams: CommandStreams) -> int:  # noqa: ARG002
        """Refuse the command: nothing runs."""
        raise Refused(f"`{command[0]}` cannot be started in pod `{pod.pod}`")

    def logs(
        self,
        ref: JobRef,
        pod: str,
        log_range: LogRange,
        *,
        pod_state: PodChanged | None = None,  # noqa: ARG002 - the protocol's signature
    ) -> Iterator[LogLine | LogGap]:
        """Yield the lines of the script, of the newest container or of those before it."""
        job = self._job(ref.name, ref.namespace)
        lines: builtins.list[LogLine | LogGap] = [e for e in job.script if isinstance(e, LogLine | LogGap) and e.pod == pod]
        newest = next((state.container_id for state in job.snapshot.pods if state.pod == pod), "")
        if log_range.previous:
            lines = [e for e in lines if isinstance(e, LogLine) and e.container_id not in {"", newest}]
        elif any(isinstance(e, LogLine) and e.container_id == newest for e in lines):
            lines = [e for e in lines if isinstance(e, LogGap) or e.container_id in {"", newest}]
        if not lines:
            raise NotFound(f"pod `{pod}` has no log")
        yield from lines if log_range.tail is None else lines[max(len(lines) - log_range.tail, 0) :]

    def filtered_logs(
        self,
        ref: JobRef,
        pod: str,
        log_range: LogRange,  # noqa: ARG002 - the protocol's signature
        line_filter: LineFilterFactory,  # noqa: ARG002 - the protocol's signature
    ) -> Iterator[LogEvent]:
        """Yield the log events of the script, unfiltered."""
        script = self._job(ref.name, ref.namespace).script
        yield from (e for e in script if isinstance(e, LogLine | LogGap | LinesSkipped | OpenLine) and e.pod == pod)

    def stop(self, ref: JobRef, *, timeout: float, force: bool = False) -> None:  # noqa: ARG002 - the protocol's signature
        """Remove the job."""
        self._job(ref.name, ref.namespace)
        self.calls.append(("stop", ref.name))
        del self.jobs[ref.namespace, ref.name]

    def apply_object(self, manifest: JsonObject) -> None:
        """Record the object."""
        self.objects.append(manifest)

    def create_object(self, manifest: JsonObject) -> JsonObject:
        """Record the object."""
        self.objects.append(manifest)
        return manifest

    def replace_object(self, manifest: JsonObject) -> JsonObject:
        """Record the object."""
        self.objects.append(manifest)
        return manifest

    def delete_object(self, manifest: JsonObject) -> None:
        """Record the deletion."""
        self.calls.append(("delete", manifest["metadata"]["name"]))

    def annotate(self, ref: JobRef, annotations: JsonMapping) -> None:
        """Record the annotations."""
        self.objects.append({"kind": ref.job_kind, "metadata": {"name": ref.name, "annotations": dict(annotations)}})

    def has_remains(self, ref: JobRef) -> bool:  # noqa: ARG002 - a stop leaves nothing
        """Return False: a stop leaves nothing."""
        return False

    def watch_jobs(self, namespace: str) -> Iterator[JobSnapshot]:
        """Yield the jobs, and end."""
        yield from self.list(namespace=namespace)

    def dry_run(self, objects: Sequence[JsonObject]) -> builtins.list[JsonObject]:
        """Return the objects unchanged."""
        return [*objects]

    def _get_owner(self, objects: Sequence[JsonObject]) -> JobSnapshot:
        metadata = get_job(objects)["metadata"]
        return self.get(metadata["name"], namespace=metadata["namespace"])

    def node_architectures(self) -> frozenset[str]:
        """Return an empty set, as for a user without permission to list nodes."""
        return frozenset()

    def inventory(self, namespace: str) -> EmptyInventory:
        """Return the inventory of a cluster that has nothing."""
        return EmptyInventory(namespace)

    def _check_name(self, name: str, namespace: str) -> None:
        if (namespace, name) in self.jobs:
            raise AlreadyExists(f"job `{name}` exists already", hint=f"`kfjob stop {name}` removes it")

    def _job(self, name: str, namespace: str) -> _Job:
        if (namespace, name) not in self.jobs:
            raise NotFound(f"there is no job `{name}` in namespace `{namespace}`", hint="`kfjob list` shows what there is")
        return self.jobs[namespace, name]


class EmptyInventory:
    """Implements `Inventory` for a cluster that has nothing and permits everything."""

    host = "https://fake"

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def server_version(self) -> str:
        """Return a version of Kubernetes."""
        return "v1.34.0"

    def list_resources(self, *_: object, **__: object) -> frozenset[str]:
        """Return nothing."""
        return frozenset()

    def get_object(
        self,
        api_version: str,  # noqa: ARG002 - the protocol's signature
        resource: str,
        name: str,
        *,
        namespaced: bool = True,  # noqa: ARG002 - the protocol's signature
    ) -> JsonObject | None:
        """Return None; every namespace exists."""
        return {"metadata": {"name": name}} if resource == "namespaces" else None

    def list_objects(self, *_: object, **__: object) -> list[JsonObject]:
        """Return nothing."""
        return []

    def dry_run_create(
        self,
        api_version: str,  # noqa: ARG002 - the protocol's signature
        resource: str,  # noqa: ARG002 - the protocol's signature
        body: JsonMapping,
    ) -> JsonObject:
        """Return the object unchanged."""
        return dict(body)

    def find_missing_permissions(self, *_: object, **__: object) -> list[Permission]:
        """Return nothing."""
        return []
